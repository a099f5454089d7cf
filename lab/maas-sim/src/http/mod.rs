//! The HTTP half of MAAS: addresses, authentication, bodies, answers.

pub mod auth;
mod describe;
pub mod forms;
mod handlers;
pub mod metadata;
pub mod render;
pub mod reply;
pub mod routes;

use http::{HeaderMap, Method};

use self::{
    auth::{Identity, Nonces, Signed, percent_decode},
    forms::{Encoding, Form},
    reply::Reply,
    routes::{Resource, Route},
};
use crate::model::{Model, Outcome, Refusal};
use crate::version::Change;

/// nginx in front of MAAS takes bodies up to this size.
pub const MAX_BODY: usize = 10 * 1024 * 1024;

/// A request as it came in.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Incoming {
    pub method: Method,
    /// Path as sent, not decoded.
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A request that leads somewhere and says who asks.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Call {
    pub route: &'static Route,
    pub action: &'static str,
    pub parameters: Vec<String>,
    pub user: i64,
    pub admin: bool,
    pub query: Form,
    pub body: Form,
    /// Scheme and host as the client sees them.
    pub origin: String,
    /// A fresh certificate and key, for a registration that brings none.
    pub new_pair: (String, String),
}

impl Call {
    /// What kind of request it is, for faults and the ledger: "machines.allocate", "vm-host.compose".
    pub fn kind(&self) -> String {
        kind_of(self.route, self.action)
    }

    /// Parameters: of the body for POST and PUT, of the query otherwise.
    pub fn data(&self) -> &Form {
        let in_body = matches!(self.action, "create" | "update") || self.route.post_ops.contains(&self.action);
        if in_body { &self.body } else { &self.query }
    }

    fn parameter(&self, index: usize) -> &str {
        self.parameters.get(index).map_or("", String::as_str)
    }

    fn require_admin(&self) -> Outcome<()> {
        if self.admin { Ok(()) } else { Err(Refusal::admins_only()) }
    }

    fn require_right(&self) -> Outcome<()> {
        if self.admin { Ok(()) } else { Err(Refusal::Forbidden) }
    }
}

/// Name of a kind of request.
pub fn kind_of(route: &Route, action: &str) -> String {
    let base: Vec<&str> = route.path.trim_end_matches('/').split('/').filter(|part| !part.starts_with('{')).collect();
    let item = route.path.trim_end_matches('/').ends_with('}');
    let noun = base.last().copied().unwrap_or_default();
    let noun = if item { noun.trim_end_matches('s') } else { noun };
    format!("{noun}.{action}")
}

/// Where a path leads, before anybody is asked who they are.
#[derive(Debug)]
pub enum Target {
    /// Nowhere: the answer is ready.
    Answer(Box<Reply>),
    /// To a resource.
    Route(routes::Match),
}

/// Merges slashes as nginx does, decodes, and finds the resource.
pub fn target(model: &Model, incoming: &Incoming) -> Target {
    let decoded = percent_decode(&incoming.path);
    let mut path = String::with_capacity(decoded.len());
    for c in decoded.chars() {
        if c != '/' || !path.ends_with('/') {
            path.push(c);
        }
    }
    let answer = |reply: Reply| Target::Answer(Box::new(reply));
    if path.starts_with("/MAAS/api/1.0/") {
        let mut gone = Reply::handler(410, "The 1.0 API is no longer available. Please use API version 2.0.");
        gone.vary = None;
        gone.hash = false;
        return answer(gone);
    }
    let Some(rest) = path.strip_prefix("/MAAS/api/2.0/") else {
        return answer(Reply::nginx(404, "Not Found"));
    };
    match routes::find(rest, model.version.has(Change::OperationInPath)) {
        Some(found) => Target::Route(found),
        None => answer(Reply::unknown_endpoint(&path)),
    }
}

/// Authenticates and finds the action. The answer to a request that fails at that is ready.
pub fn prepare(
    model: &Model,
    nonces: &mut Nonces,
    incoming: &Incoming,
    found: routes::Match,
    wall: i64,
) -> Result<Call, Box<Reply>> {
    let route = found.route;
    let query = Form::from_query(&incoming.query);
    let origin = format!("http://{}", header(&incoming.headers, "host").unwrap_or("localhost"));
    let url = format!("{origin}{}", incoming.path);
    let method = incoming.method.as_str();
    let signed = Signed { method, url: &url, query: &query };
    let identity = if route.is_public() {
        Identity::Anonymous
    } else {
        auth::identify(model, nonces, &incoming.headers, &signed, wall)?
    };
    let body = Form::from_body(header(&incoming.headers, "content-type"), &incoming.body);
    // An empty operation is none: some clients always send the parameter.
    let named = |form: &Form| form.text("op").filter(|op| !op.is_empty());
    let in_body = || (method == "POST" || method == "PUT").then(|| named(&body)).flatten();
    let op = found.op.or_else(|| named(&query)).or_else(in_body);
    let unrecognised = || {
        let op = op.as_deref().unwrap_or("None");
        Box::new(Reply::text(400, &format!("Unrecognised signature: method={method} op={op}")))
    };
    let action = match identity {
        Identity::Anonymous if !route.is_public() => {
            let Some((gets, posts)) = routes::anonymous_ops(route.resource) else {
                return Err(Box::new(Reply::handler(401, "Forbidden")));
            };
            let word = op.as_deref().unwrap_or(match method {
                "POST" => "create",
                "GET" => "read",
                _ => "",
            });
            let known = match method {
                "GET" => gets,
                "POST" => posts,
                _ => return Err(Box::new(Reply::not_allowed("POST, GET"))),
            };
            known.iter().copied().find(|action| *action == word).ok_or_else(unrecognised)?
        }
        _ => {
            let methods = route.methods();
            if !methods.contains(&method) {
                return Err(Box::new(Reply::not_allowed(&methods.join(", "))));
            }
            route.action(method, op.as_deref()).ok_or_else(unrecognised)?
        }
    };
    let user = match identity {
        Identity::User(id) => id,
        Identity::Anonymous => 0,
    };
    let admin = model.db.users.get(&user).is_some_and(|user| user.admin);
    let new_pair = (String::new(), String::new());
    Ok(Call { route, action, parameters: found.parameters, user, admin, query, body, origin, new_pair })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Carries a call out.
pub fn answer(model: &mut Model, call: &Call) -> Reply {
    let unread = call.body.encoding == Encoding::Unread && matches!(call.action, "create" | "update");
    let outcome = if unread { Err(Refusal::Form(Vec::new())) } else { dispatch(model, call) };
    match outcome {
        Ok(reply) => reply,
        Err(refusal) => Reply::refused(&refusal, model.version),
    }
}

fn dispatch(model: &mut Model, call: &Call) -> Outcome<Reply> {
    use Resource as R;

    use self::handlers as h;
    match call.route.resource {
        R::Version => Ok(h::misc::version(model)),
        R::Describe => Ok(describe::reply(call)),
        R::Users | R::User | R::Account | R::SshKeys => h::users::answer(model, call),
        R::Zones | R::Zone => h::places::zones(model, call),
        R::ResourcePools | R::ResourcePool => h::places::pools(model, call),
        R::Domains | R::Domain => h::places::domains(model, call),
        R::Fabrics | R::Fabric | R::Vlans | R::Vlan | R::VlanById | R::Spaces | R::Space => {
            h::fabrics::answer(model, call)
        }
        R::Subnets | R::Subnet => h::subnets::answer(model, call),
        R::IpRanges | R::IpRange => h::ranges::answer(model, call),
        R::IpAddresses => h::subnets::addresses(model, call),
        R::DnsResources | R::DnsResource | R::DnsRecords | R::DnsRecord => h::dns::answer(model, call),
        R::Tags | R::Tag => h::tags::answer(model, call),
        R::BootResources | R::BootResource => h::images::answer(model, call),
        R::Events => h::events::query(model, call),
        R::Maas => h::misc::settings(model, call),
        R::Machines => h::machines::answer(model, call),
        R::Machine => h::machine::answer(model, call),
        R::Nodes => h::nodes::answer(model, call),
        R::Node => h::nodes::item(model, call),
        R::BlockDevices | R::ScriptResults => h::machine::parts(model, call),
        R::Interfaces | R::Interface => h::interfaces::answer(model, call),
        R::VmHosts | R::VmHost | R::Pods | R::Pod => h::vm_hosts::answer(model, call),
        R::VmClusters => Ok(Reply::json(&serde_json::json!([]))),
        R::Devices | R::Device => h::devices::answer(model, call),
        R::RackControllers | R::RackController | R::RegionControllers => h::misc::controllers(model, call),
    }
}
