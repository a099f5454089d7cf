//! What MAAS stores and nothing here depends on.

use serde_json::{Map, Value, json};

/// Kinds of such records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKind {
    BootSource,
    BootSourceSelection,
    DhcpSnippet,
    Notification,
    PackageRepository,
    SshKey,
    SslKey,
    StaticRoute,
}

/// The fields of a record.
pub type Row = Map<String, Value>;

/// The records of every MAAS, with their ids. From MAAS's source, not recorded.
pub fn installed(now: &str) -> Vec<((RecordKind, i64), Row)> {
    let repository = |name: &str, host: &str, arches: [&str; 2]| {
        json!({
            "name": name, "url": format!("http://{host}.ubuntu.com/ubuntu"), "distributions": [],
            "disabled_pockets": [], "disabled_components": [], "disable_sources": true, "components": [],
            "arches": arches, "key": "", "enabled": true,
        })
    };
    let source = json!({
        "url": "http://images.maas.io/ephemeral-v3/stable/", "keyring_data": "",
        "keyring_filename": "/usr/share/keyrings/ubuntu-cloudimage-keyring.gpg", "created": now, "updated": now,
    });
    let rows = [
        (RecordKind::PackageRepository, 1, repository("main_archive", "archive", ["amd64", "i386"])),
        (RecordKind::PackageRepository, 2, repository("ports_archive", "ports", ["arm64", "ppc64el"])),
        (RecordKind::BootSource, 1, source),
    ];
    let row = |value: Value| value.as_object().cloned().unwrap_or_default();
    rows.into_iter().map(|(kind, id, value)| ((kind, id), row(value))).collect()
}
