//! The HTTP half of MAAS: URLs, authentication, bodies, answers.

pub mod auth;
mod describe;
pub mod forms;
mod handlers;
pub mod metadata;
pub mod render;
pub mod reply;
pub mod routes;
pub mod surface;

use http::{HeaderMap, Method};

use self::{
    auth::{Identity, Nonces, Signed, percent_decode},
    forms::{Encoding, Form},
    reply::Reply,
    routes::{Action, Operation, Route},
    surface::{Collection, EventsAction, Item, Shown},
};
use crate::model::{Model, Outcome, Refusal};
use crate::version::Change;

/// The maximum body size of the nginx in front of MAAS.
pub const MAX_BODY: usize = 10 * 1024 * 1024;

/// A request as received.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub method: Method,
    /// Path as sent, not decoded.
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A routed and authenticated request.
#[derive(Clone, Debug)]
pub struct Call {
    pub route: &'static Route,
    pub operation: Operation,
    pub action: Action,
    pub parameters: Vec<String>,
    pub user: i64,
    pub admin: bool,
    pub query: Form,
    pub body: Form,
    /// Scheme and host as the client sees them.
    pub origin: String,
    /// A fresh certificate and key, for a registration without one.
    pub new_pair: (String, String),
}

impl Call {
    /// The kind of request, for faults and the ledger: "machines.allocate", "vm-host.compose".
    pub fn kind(&self) -> String {
        kind_of(self.route, self.operation.name)
    }

    /// Parameters: of the body for POST and PUT, of the query otherwise.
    pub fn data(&self) -> &Form {
        if matches!(self.operation.method, "POST" | "PUT") { &self.body } else { &self.query }
    }

    /// Parameters of an operation that only reads forms: to it a JSON body is empty.
    pub fn posted(&self) -> &Form {
        static NOTHING: Form = Form { pairs: Vec::new(), files: Vec::new(), encoding: Encoding::Form };
        let data = self.data();
        if data.encoding == Encoding::Json { &NOTHING } else { data }
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
    let noun = base.last().copied().unwrap_or_default();
    let noun = if route.is_item() { noun.trim_end_matches('s') } else { noun };
    format!("{noun}.{action}")
}

/// The target of a path, before authentication.
#[derive(Debug)]
pub enum Target {
    /// None: the answer is ready.
    Answer(Box<Reply>),
    /// A resource.
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

/// Authenticates and finds the action. If either fails, returns the answer.
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
    let body = Form::from_body(header(&incoming.headers, "content-type"), &incoming.body);
    // JSON is not a form.
    let posted = (method == "POST" && body.encoding == Encoding::Form).then_some(&body);
    let signed = Signed { method, url: &url, query: &query, posted };
    let identity = if route.is_public() {
        Identity::Anonymous
    } else {
        auth::identify(model, nonces, &incoming.headers, &signed, wall)?
    };
    // Checked after the signature and before the method.
    let unreadable = body.encoding == Encoding::Malformed && matches!(method, "POST" | "PUT");
    let unreadable = || unreadable.then(|| Box::new(Reply::handler(400, "Bad Request")));
    // An empty operation counts as absent: some clients always send the parameter.
    let named = |form: &Form| form.text("op").filter(|op| !op.is_empty());
    let in_body = || (method == "POST" || method == "PUT").then(|| named(&body)).flatten();
    let op = named(&query).or_else(in_body).or(found.op);
    let unrecognised = || {
        let op = op.as_deref().unwrap_or("None");
        Box::new(Reply::text(400, &format!("Unrecognised signature: method={method} op={op}")))
    };
    let (operation, action) = match identity {
        Identity::Anonymous if !route.is_public() => {
            let allowed = route.anonymous().unwrap_or_default();
            // If the method has no anonymous operation here, a signature is required.
            if !allowed.iter().any(|operation| operation.method == method) {
                return Err(Box::new(Reply::handler(401, "Forbidden")));
            }
            unreadable().map_or(Ok(()), Err)?;
            let found = route.action(method, op.as_deref()).filter(|(operation, _)| allowed.contains(operation));
            found.ok_or_else(unrecognised)?
        }
        _ => {
            unreadable().map_or(Ok(()), Err)?;
            let methods = route.methods();
            if !methods.contains(&method) {
                return Err(Box::new(Reply::not_allowed(&methods.join(", "))));
            }
            let found = route.action(method, op.as_deref());
            found.filter(|(operation, _)| route.signed().any(|known| known == *operation)).ok_or_else(unrecognised)?
        }
    };
    let user = match identity {
        Identity::User(id) => id,
        Identity::Anonymous => 0,
    };
    let admin = model.db.users.get(&user).is_some_and(|user| user.admin);
    let new_pair = (String::new(), String::new());
    Ok(Call { route, operation, action, parameters: found.parameters, user, admin, query, body, origin, new_pair })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Executes a call.
pub fn answer(model: &mut Model, call: &Call) -> Reply {
    let unread = call.body.encoding == Encoding::Unread && matches!(call.operation.name, "create" | "update");
    let outcome = if unread { Err(Refusal::Form(Vec::new())) } else { dispatch(model, call) };
    match outcome {
        Ok(reply) => reply,
        Err(refusal) => Reply::refused(&refusal, model.version),
    }
}

fn dispatch(model: &mut Model, call: &Call) -> Outcome<Reply> {
    use Action as A;

    use self::handlers as h;
    match call.action {
        A::Version(_) => Ok(h::misc::version(model)),
        A::Describe(_) => Ok(describe::reply(model, call)),
        A::Users(action) => h::users::users(model, call, action),
        A::User(action) => h::users::user(model, call, action),
        A::Account(action) => h::users::account(model, call, action),
        A::Zones(action) => h::places::zones(model, call, action),
        A::Zone(action) => h::places::zone(model, call, action),
        A::ResourcePools(action) => h::places::pools(model, call, action),
        A::ResourcePool(action) => h::places::pool(model, call, action),
        A::Domains(action) => h::places::domains(model, call, action),
        A::Domain(action) => h::places::domain(model, call, action),
        A::Fabrics(action) => h::fabrics::fabrics(model, call, action),
        A::Fabric(action) => h::fabrics::fabric(model, call, action),
        A::Vlans(action) => h::fabrics::vlans(model, call, action),
        A::Vlan(action) | A::VlanById(action) => h::fabrics::vlan(model, call, action),
        A::Spaces(action) => h::fabrics::spaces(model, call, action),
        A::Space(action) => h::fabrics::space(model, call, action),
        A::Subnets(action) => h::subnets::subnets(model, call, action),
        A::Subnet(action) => h::subnets::subnet(model, call, action),
        A::IpRanges(action) => h::ranges::ranges(model, call, action),
        A::IpRange(action) => h::ranges::range(model, call, action),
        A::IpAddresses(action) => h::addresses::addresses(model, call, action),
        A::DnsResources(action) => h::dns::resources(model, call, action),
        A::DnsResource(action) => h::dns::resource(model, call, action),
        A::DnsRecords(action) => h::dns::records(model, call, action),
        A::DnsRecord(action) => h::dns::record(model, call, action),
        A::Tags(action) => h::tags::tags(model, call, action),
        A::Tag(action) => h::tags::tag(model, call, action),
        A::BootResources(action) => h::images::images(model, call, action),
        A::BootResource(action) => h::images::image(model, call, action),
        A::Events(EventsAction::Query) => h::events::query(model, call),
        A::Maas(action) => h::misc::settings(model, call, action),
        A::Machines(action) => h::machines::answer(model, call, action),
        A::Machine(action) => h::machine::answer(model, call, action),
        A::Nodes(action) => h::nodes::nodes(model, call, action),
        A::Node(action) => h::nodes::node(model, call, action),
        A::Interfaces(action) => h::interfaces::interfaces(model, call, action),
        A::Interface(action) => h::interfaces::interface(model, call, action),
        A::VmHosts(action) | A::Pods(action) => h::vm_hosts::hosts(model, call, action),
        A::VmHost(action) | A::Pod(action) => h::vm_hosts::host(model, call, action),
        A::VmClusters(Shown::Read) => Ok(Reply::json(&serde_json::json!([]))),
        A::Devices(action) => h::devices::devices(model, call, action),
        A::Device(action) => h::devices::device(model, call, action),
        A::RackControllers(action) => h::misc::racks(model, call, action),
        A::RackController(action) => h::misc::rack(model, call, action),
        A::RegionControllers(action) => h::misc::regions(model, call, action),
        A::RegionController(action) => h::misc::region(model, call, action),
        A::BlockDevices(action) => h::storage::block_devices(model, call, action),
        A::BlockDevice(action) => h::storage::block_device(model, call, action),
        A::Partitions(action) => h::storage::partitions(model, call, action),
        A::Partition(action) => h::storage::partition(model, call, action),
        A::Bcaches(action)
        | A::BcacheCacheSets(action)
        | A::Raids(action)
        | A::VmfsDatastores(action)
        | A::VolumeGroups(action) => h::storage::made_of_disks(model, call, action),
        A::Bcache(_) => h::storage::made_of_disk(model, call, "Bcache"),
        A::BcacheCacheSet(_) => h::storage::made_of_disk(model, call, "CacheSet"),
        A::Raid(_) => h::storage::made_of_disk(model, call, "RAID"),
        A::VmfsDatastore(_) => h::storage::made_of_disk(model, call, "VMFS"),
        A::VolumeGroup(_) => h::storage::made_of_disk(model, call, "VolumeGroup"),
        A::NodeDevices(action) => h::storage::node_devices(model, call, action),
        A::NodeDevice(action) => h::storage::node_device(model, call, action),
        A::ScriptResults(action) => h::storage::results(model, call, action),
        A::ScriptResult(action) => h::storage::result(model, call, action),
        A::BootSources(action) => h::records::BOOT_SOURCES.collection(model, call, action),
        A::BootSource(action) => h::records::BOOT_SOURCES.item(model, call, action),
        A::BootSourceSelections(action) => h::records::SELECTIONS.collection(model, call, action),
        A::BootSourceSelection(action) => h::records::SELECTIONS.item(model, call, action),
        A::DhcpSnippets(action) => h::records::SNIPPETS.collection(model, call, action),
        A::DhcpSnippet(action) => h::records::snippet(model, call, action),
        A::Notifications(action) => h::records::NOTIFICATIONS.collection(model, call, action),
        A::Notification(action) => h::records::notification(model, call, action),
        A::PackageRepositories(action) => h::records::REPOSITORIES.collection(model, call, action),
        A::PackageRepository(action) => h::records::REPOSITORIES.item(model, call, action),
        A::SshKeys(action) => h::records::ssh_keys(model, call, action),
        A::SshKey(action) => h::records::SSH_KEYS.kept(model, call, action),
        A::SslKeys(action) => h::records::SSL_KEYS.collection(model, call, action),
        A::SslKey(action) => h::records::SSL_KEYS.kept(model, call, action),
        A::StaticRoutes(action) => h::records::ROUTES.collection(model, call, action),
        A::StaticRoute(action) => h::records::ROUTES.item(model, call, action),
        A::Discoveries(action) => h::misc::discoveries(call, action),
        A::Discovery(Shown::Read) => Err(Refusal::NotFound("Discovery")),
        A::VmCluster(_) => Err(Refusal::NotFound("VMCluster")),
        A::InstallationResults(Shown::Read) | A::LicenseKeys(Collection::Read) => {
            Ok(Reply::json(&serde_json::json!([])))
        }
        A::LicenseKey(Item::Read) => Err(Refusal::NotFound("LicenseKey")),
        // Not needed to run clusters: deprecated operations, those for Windows and early Juju, and the contents of
        // scripts.
        A::CommissioningScripts(_)
        | A::CommissioningScript(_)
        | A::Files(_)
        | A::File(_)
        | A::LicenseKeys(Collection::Create)
        | A::LicenseKey(Item::Update | Item::Delete)
        | A::Networks(_)
        | A::Network(_)
        | A::Scripts(_)
        | A::Script(_) => Err(h::unsupported(call)),
    }
}
