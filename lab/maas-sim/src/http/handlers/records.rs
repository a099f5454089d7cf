//! What MAAS stores and nothing here depends on: boot sources, notifications, routes, repositories, keys. Their forms
//! are tables. All of it comes from MAAS's source and is not recorded.

use serde_json::{Value, json};

use super::{
    super::{
        Call,
        forms::{Form, is_true},
        render::{self, iso, network},
        reply::Reply,
        surface::{Collection, DhcpSnippetAction, Item, Kept, NotificationAction, SshKeysAction},
    },
    list, unsupported,
};
use crate::model::{
    Model, Outcome, Refusal,
    records::{RecordKind, Row},
    refusal::FormCheck,
};

/// The type of a form field.
enum Takes {
    /// A required text.
    Required,
    Text(&'static str),
    Flag(bool),
    Number(i64),
    /// Several texts: the field is repeated.
    Texts,
    /// One of these; the first if none is given.
    Choice(&'static [&'static str]),
    /// A subnet, in any of its notations.
    Subnet,
}

/// Who may read a kind of record.
#[derive(PartialEq)]
enum Seen {
    All,
    Admins,
    /// Only its owner.
    Owner,
}

/// A kind of record.
pub(crate) struct RecordForm {
    kind: RecordKind,
    /// The noun in the 404 of a failed look-up.
    noun: &'static str,
    /// The path of the collection, with the parameter of the selections of a boot source.
    path: &'static str,
    seen: Seen,
    fields: &'static [(&'static str, Takes)],
}

pub(crate) const BOOT_SOURCES: RecordForm = RecordForm {
    kind: RecordKind::BootSource,
    noun: "BootSource",
    path: "boot-sources",
    seen: Seen::Admins,
    fields: &[("url", Takes::Required), ("keyring_filename", Takes::Text("")), ("keyring_data", Takes::Text(""))],
};
pub(crate) const SELECTIONS: RecordForm = RecordForm {
    kind: RecordKind::BootSourceSelection,
    noun: "BootSourceSelection",
    path: "boot-sources/{}/selections",
    seen: Seen::Admins,
    fields: &[
        ("os", Takes::Text("")),
        ("release", Takes::Required),
        ("arches", Takes::Texts),
        ("subarches", Takes::Texts),
        ("labels", Takes::Texts),
    ],
};
pub(crate) const SNIPPETS: RecordForm = RecordForm {
    kind: RecordKind::DhcpSnippet,
    noun: "DHCPSnippet",
    path: "dhcp-snippets",
    seen: Seen::Admins,
    fields: &[
        ("name", Takes::Required),
        ("value", Takes::Required),
        ("description", Takes::Text("")),
        ("enabled", Takes::Flag(true)),
        ("global_snippet", Takes::Flag(false)),
    ],
};
pub(crate) const NOTIFICATIONS: RecordForm = RecordForm {
    kind: RecordKind::Notification,
    noun: "Notification",
    path: "notifications",
    seen: Seen::All,
    fields: &[
        ("message", Takes::Required),
        ("ident", Takes::Text("")),
        ("users", Takes::Flag(false)),
        ("admins", Takes::Flag(false)),
        ("category", Takes::Choice(&["info", "error", "warning", "success"])),
        ("dismissable", Takes::Flag(true)),
    ],
};
pub(crate) const REPOSITORIES: RecordForm = RecordForm {
    kind: RecordKind::PackageRepository,
    noun: "PackageRepository",
    path: "package-repositories",
    seen: Seen::All,
    fields: &[
        ("name", Takes::Required),
        ("url", Takes::Required),
        ("distributions", Takes::Texts),
        ("disabled_pockets", Takes::Texts),
        ("disabled_components", Takes::Texts),
        ("disable_sources", Takes::Flag(true)),
        ("components", Takes::Texts),
        ("arches", Takes::Texts),
        ("key", Takes::Text("")),
        ("enabled", Takes::Flag(true)),
    ],
};
pub(crate) const SSH_KEYS: RecordForm = RecordForm {
    kind: RecordKind::SshKey,
    noun: "SSHKey",
    path: "account/prefs/sshkeys",
    seen: Seen::Owner,
    fields: &[("key", Takes::Required)],
};
pub(crate) const SSL_KEYS: RecordForm = RecordForm {
    kind: RecordKind::SslKey,
    noun: "SSLKey",
    path: "account/prefs/sslkeys",
    seen: Seen::Owner,
    fields: &[("key", Takes::Required)],
};
pub(crate) const ROUTES: RecordForm = RecordForm {
    kind: RecordKind::StaticRoute,
    noun: "StaticRoute",
    path: "static-routes",
    seen: Seen::All,
    fields: &[
        ("source", Takes::Subnet),
        ("destination", Takes::Subnet),
        ("gateway_ip", Takes::Required),
        ("metric", Takes::Number(0)),
    ],
};

/// The types of SSH keys that MAAS accepts.
const SSH_KEY_TYPES: &[&str] = &[
    "ssh-rsa",
    "ssh-dss",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

impl RecordForm {
    /// Reads a form into a record, which is new or keeps its values.
    fn read(&self, model: &Model, form: &Form, mut row: Row, new: bool) -> Outcome<Row> {
        let mut check = FormCheck::default();
        for (name, takes) in self.fields {
            let given = form.get(name).filter(|text| !text.is_empty());
            let missing = new && given.is_none();
            let value = match takes {
                Takes::Required | Takes::Subnet if missing => {
                    check.add(name, "This field is required.");
                    continue;
                }
                Takes::Required => given.map(Value::from),
                Takes::Text(default) => given.map(Value::from).or(missing.then(|| json!(default))),
                Takes::Flag(default) => given.map(|text| json!(is_true(text))).or(missing.then(|| json!(default))),
                Takes::Number(default) => {
                    check.whole_number(name, given).map(|number| json!(number)).or(missing.then(|| json!(default)))
                }
                Takes::Texts => (form.has(name) || missing).then(|| json!(form.all(name))),
                Takes::Choice(known) => {
                    if let Some(text) = given.filter(|text| !known.contains(text)) {
                        let words = format!("Select a valid choice. {text} is not one of the available choices.");
                        check.add(name, words);
                    }
                    given.map(Value::from).or(missing.then(|| json!(known.first())))
                }
                Takes::Subnet => given.and_then(|text| {
                    let found = model.find_subnet(text).map(|subnet| json!(subnet.id));
                    if found.is_none() {
                        let words = "Select a valid choice. That choice is not one of the available choices.";
                        check.add(name, words);
                    }
                    found
                }),
            };
            if let Some(value) = value {
                row.insert((*name).to_owned(), value);
            }
        }
        self.check(&row, &mut check);
        check.done()?;
        Ok(row)
    }

    /// The rules for a record as a whole.
    fn check(&self, row: &Row, check: &mut FormCheck) {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = || text("key").split_whitespace().next().unwrap_or_default();
        if self.kind == RecordKind::SshKey && !check.is_wrong("key") && !SSH_KEY_TYPES.contains(&kind()) {
            check.add("key", "Invalid SSH public key.");
        }
        if self.kind == RecordKind::StaticRoute && check.is_fine() && row.get("source") == row.get("destination") {
            check.add("__all__", "source and destination cannot be the same subnet.");
        }
    }

    fn rendered(&self, model: &Model, id: i64, row: &Row) -> Value {
        let mut value = json!({"id": id});
        for (name, takes) in self.fields {
            let kept = row.get(*name).cloned().unwrap_or(Value::Null);
            value[*name] = match takes {
                Takes::Subnet => {
                    let subnet = kept.as_i64().and_then(|id| model.db.subnets.get(&id));
                    subnet.map_or(Value::Null, |row| network::subnet(model, row))
                }
                _ => kept,
            };
        }
        let path = self.path.replace("{}", &row.get("boot_source_id").map(ToString::to_string).unwrap_or_default());
        value["resource_uri"] = json!(render::uri(&format!("{path}/{id}/")));
        for key in ["boot_source_id", "created", "updated"] {
            if let Some(kept) = row.get(key) {
                value[key] = kept.clone();
            }
        }
        match self.kind {
            RecordKind::SshKey => value["keysource"] = Value::Null,
            RecordKind::Notification => {
                value["user"] = Value::Null;
                value["context"] = json!({});
            }
            RecordKind::DhcpSnippet => {
                value["node"] = Value::Null;
                value["subnet"] = Value::Null;
                value["iprange"] = Value::Null;
                value["history"] = json!([]);
            }
            _ => {}
        }
        value
    }

    /// Whether a record belongs to the requested collection.
    fn is_here(&self, row: &Row, call: &Call) -> bool {
        let asked = call.parameter(0).parse::<i64>().ok();
        let of_source = row.get("boot_source_id").is_none_or(|id| id.as_i64() == asked);
        let own = self.seen != Seen::Owner || row.get("user").and_then(Value::as_i64) == Some(call.user);
        of_source && own
    }

    fn may_see(&self, call: &Call) -> Outcome<()> {
        if self.seen == Seen::Admins { call.require_admin() } else { Ok(()) }
    }

    fn may_change(&self, call: &Call) -> Outcome<()> {
        if self.seen == Seen::Owner { Ok(()) } else { call.require_admin() }
    }

    /// The records of a kind.
    pub(crate) fn collection(&self, model: &mut Model, call: &Call, action: Collection) -> Outcome<Reply> {
        self.may_see(call)?;
        if self.kind == RecordKind::BootSourceSelection {
            BOOT_SOURCES.find(model, call, call.parameter(0))?;
        }
        match action {
            Collection::Read => {
                let rows =
                    model.db.records.iter().filter(|((kind, _), row)| *kind == self.kind && self.is_here(row, call));
                list(rows.map(|((_, id), row)| self.rendered(model, *id, row)).collect())
            }
            Collection::Create => {
                self.may_change(call)?;
                let mut row = self.read(model, &call.body, Row::new(), true)?;
                match self.kind {
                    RecordKind::BootSourceSelection => {
                        row.insert("boot_source_id".to_owned(), json!(call.parameter(0).parse::<i64>().unwrap_or(0)));
                    }
                    RecordKind::SshKey | RecordKind::SslKey => {
                        row.insert("user".to_owned(), json!(call.user));
                    }
                    RecordKind::BootSource => {
                        for key in ["created", "updated"] {
                            row.insert(key.to_owned(), json!(iso(model, model.now)));
                        }
                    }
                    _ => {}
                }
                let ids = model.db.records.keys().filter(|(kind, _)| *kind == self.kind).map(|(_, id)| *id);
                let id = ids.max().unwrap_or(0) + 1;
                let value = self.rendered(model, id, &row);
                model.db.records.insert((self.kind, id), row);
                // Keys and boot sources answer 201, the others 200.
                let created = matches!(
                    self.kind,
                    RecordKind::SshKey | RecordKind::SslKey | RecordKind::BootSource | RecordKind::BootSourceSelection
                );
                Ok(if created { Reply::created(&value) } else { Reply::json(&value) })
            }
        }
    }

    fn find<'a>(&self, model: &'a Model, call: &Call, text: &str) -> Outcome<(i64, &'a Row)> {
        let id = text.parse::<i64>().ok();
        let found = id.and_then(|id| Some((id, model.db.records.get(&(self.kind, id))?)));
        found.filter(|(_, row)| self.is_here(row, call)).ok_or(Refusal::NotFound(self.noun))
    }

    /// One record.
    pub(crate) fn item(&self, model: &mut Model, call: &Call, action: Item) -> Outcome<Reply> {
        self.may_see(call)?;
        let text = call.parameters.last().map_or("", String::as_str);
        let (id, row) = self.find(model, call, text)?;
        match action {
            Item::Read => Ok(Reply::json(&self.rendered(model, id, row))),
            Item::Update => {
                self.may_change(call)?;
                let row = self.read(model, &call.body, row.clone(), false)?;
                let value = self.rendered(model, id, &row);
                model.db.records.insert((self.kind, id), row);
                Ok(Reply::json(&value))
            }
            Item::Delete => {
                self.may_change(call)?;
                model.db.records.remove(&(self.kind, id));
                Ok(Reply::deleted())
            }
        }
    }

    /// One record that can only be read or deleted.
    pub(crate) fn kept(&self, model: &mut Model, call: &Call, action: Kept) -> Outcome<Reply> {
        let action = match action {
            Kept::Read => Item::Read,
            Kept::Delete => Item::Delete,
        };
        self.item(model, call, action)
    }
}

pub(crate) fn ssh_keys(model: &mut Model, call: &Call, action: SshKeysAction) -> Outcome<Reply> {
    match action {
        SshKeysAction::Read => SSH_KEYS.collection(model, call, Collection::Read),
        SshKeysAction::Create => SSH_KEYS.collection(model, call, Collection::Create),
        // Launchpad and GitHub would be queried for keys, and nothing here connects to them.
        SshKeysAction::Import => Err(unsupported(call)),
    }
}

pub(crate) fn notification(model: &mut Model, call: &Call, action: NotificationAction) -> Outcome<Reply> {
    let action = match action {
        NotificationAction::Read => Item::Read,
        NotificationAction::Update => Item::Update,
        NotificationAction::Delete => Item::Delete,
        NotificationAction::Dismiss => {
            let (id, _) = NOTIFICATIONS.find(model, call, call.parameter(0))?;
            model.db.records.remove(&(RecordKind::Notification, id));
            return Ok(Reply::json(&Value::Null));
        }
    };
    NOTIFICATIONS.item(model, call, action)
}

pub(crate) fn snippet(model: &mut Model, call: &Call, action: DhcpSnippetAction) -> Outcome<Reply> {
    let action = match action {
        DhcpSnippetAction::Read => Item::Read,
        DhcpSnippetAction::Update => Item::Update,
        DhcpSnippetAction::Delete => Item::Delete,
        // Only the newest value is kept.
        DhcpSnippetAction::Revert => return Err(unsupported(call)),
    };
    SNIPPETS.item(model, call, action)
}
