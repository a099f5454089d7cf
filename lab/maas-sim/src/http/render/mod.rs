//! MAAS's JSON form of its objects.

pub mod machine;
pub mod network;
pub mod storage;
pub mod vm_host;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::{
    Model,
    db::{Device, DnsResource, Domain, Event, Image, Named, Record, Tag, User, UserKey},
};
use crate::version::Change;

/// The root of all URLs.
pub const ROOT: &str = "/MAAS/api/2.0/";

/// A URL below the root.
pub fn uri(path: &str) -> String {
    format!("{ROOT}{path}")
}

/// The time format of most objects: ISO, in older versions without a time zone.
pub fn iso(model: &Model, time: Timestamp) -> String {
    let zone = if model.version.has(Change::ZonedTimes) { "Z" } else { "" };
    format!("{}{zone}", time.strftime("%Y-%m-%dT%H:%M:%S%.3f"))
}

/// The time format of events and of `op=ip_addresses`.
pub fn long_time(time: Timestamp) -> String {
    time.strftime("%a, %d %b. %Y %H:%M:%S").to_string()
}

pub fn zone(zone: &Named) -> Value {
    json!({
        "id": zone.id, "name": zone.name, "description": zone.description,
        "resource_uri": uri(&format!("zones/{}/", zone.name)),
    })
}

pub fn device(model: &Model, device: &Device) -> Value {
    let node = &device.node;
    let row = model.db.domains.get(&node.domain);
    let domain_name = row.map_or("", |domain| domain.name.as_str());
    let interfaces: Vec<Value> = node.interfaces.iter().map(|nic| network::interface(model, node, nic)).collect();
    json!({
        "system_id": node.system_id,
        "hostname": node.hostname,
        "fqdn": format!("{}.{domain_name}", node.hostname),
        "description": node.description,
        "domain": row.map(|row| domain(model, row)),
        "zone": model.db.zones.get(&node.zone).map(zone),
        "owner": node.owner.map(|owner| model.user_name(Some(owner)).to_owned()),
        "owner_data": node.annotations,
        "workload_annotations": node.annotations,
        "parent": device.parent,
        "tag_names": node.tags,
        "address_ttl": null,
        "ip_addresses": machine::addresses(model, node),
        "interface_set": interfaces,
        "node_type": 1,
        "node_type_name": "Device",
        "resource_uri": uri(&format!("devices/{}/", node.system_id)),
    })
}

/// A resource pool.
pub fn pool(pool: &Named) -> Value {
    json!({
        "id": pool.id, "name": pool.name, "description": pool.description,
        "resource_uri": uri(&format!("resourcepool/{}/", pool.id)),
    })
}

pub fn domain(model: &Model, domain: &Domain) -> Value {
    json!({
        "id": domain.id,
        "name": domain.name,
        "authoritative": domain.authoritative,
        "ttl": domain.ttl,
        "is_default": domain.id == model.db.default_domain,
        "resource_record_count": model.record_count(domain.id),
        "resource_uri": uri(&format!("domains/{}/", domain.id)),
    })
}

pub fn user(user: &User) -> Value {
    json!({
        "username": user.name, "email": user.email, "is_superuser": user.admin, "is_local": user.local,
        "resource_uri": uri(&format!("users/{}/", user.name)),
    })
}

pub fn user_by_id(model: &Model, id: Option<i64>) -> Value {
    id.and_then(|id| model.db.users.get(&id)).map_or(Value::Null, user)
}

/// A complete key, for its owner.
pub fn key(key: &UserKey) -> Value {
    json!({"name": key.name, "token": format!("{}:{}:{}", key.key.consumer, key.key.token, key.key.secret)})
}

pub fn tag(tag: &Tag) -> Value {
    json!({
        "name": tag.name, "definition": tag.definition, "comment": tag.comment, "kernel_opts": tag.kernel_opts,
        "resource_uri": uri(&format!("tags/{}/", tag.name)),
    })
}

/// A DNS record of a name.
pub fn record(fqdn: &str, record: &Record) -> Value {
    json!({
        "id": record.id, "fqdn": fqdn, "rrtype": record.rrtype, "rrdata": record.rrdata, "ttl": record.ttl,
        "resource_uri": uri(&format!("dnsresourcerecords/{}/", record.id)),
    })
}

/// A name with its addresses.
pub fn dns(model: &Model, dns: &DnsResource) -> Value {
    let fqdn = model.dns_fqdn(dns);
    let mut rows: Vec<_> = dns.addresses.iter().filter_map(|id| model.db.addresses.get(id)).collect();
    rows.sort_by_key(|row| row.id);
    json!({
        "id": dns.id,
        "fqdn": fqdn,
        "address_ttl": dns.address_ttl,
        "ip_addresses": rows.iter().map(|row| network::address(model, row)).collect::<Vec<_>>(),
        "resource_records": dns.records.iter().map(|entry| record(&fqdn, entry)).collect::<Vec<_>>(),
        "resource_uri": uri(&format!("dnsresources/{}/", dns.id)),
    })
}

pub fn event(model: &Model, event: &Event) -> Value {
    let hostname = model.db.machines.get(&event.node).map_or(event.hostname.as_str(), |m| m.hostname.as_str());
    json!({
        "id": event.id,
        "level": event.level.word(),
        "type": event.kind,
        "description": event.description,
        "created": long_time(event.created),
        "node": event.node,
        "hostname": hostname,
        "username": event.username,
    })
}

/// An image; `with_sets` for a single image.
pub fn image(model: &Model, image: &Image, with_sets: bool) -> Value {
    let (name, architecture, subarches) = if image.uploaded {
        let subarch = image.architecture.split('/').nth(1).unwrap_or("generic").to_owned();
        let name = if image.osystem == "custom" {
            image.series.clone()
        } else {
            format!("{}/{}", image.osystem, image.series)
        };
        (name, image.architecture.clone(), subarch)
    } else {
        let kernel = image.kernel();
        let old = "generic,hwe-p,hwe-q,hwe-r,hwe-s,hwe-t,hwe-u,hwe-v,hwe-w";
        (format!("{}/{}", image.osystem, image.series), format!("amd64/{kernel}"), format!("{old},{kernel}"))
    };
    let mut value = json!({
        "id": image.id,
        "type": if image.uploaded { "Uploaded" } else { "Synced" },
        "name": name,
        "architecture": architecture,
        "subarches": subarches,
        "resource_uri": uri(&format!("boot-resources/{}/", image.id)),
    });
    if !image.title.is_empty() {
        value["title"] = json!(image.title);
    }
    if model.version.has(Change::LastDeployed) {
        value["last_deployed"] = json!(image.last_deployed.map(|time| iso(model, time)));
    }
    if !image.uploaded {
        value["platform"] = json!("generic");
        value["supported_platforms"] = json!("generic");
    }
    if with_sets {
        value["sets"] = json!({ image.version.clone(): image_set(model, image) });
    }
    value
}

fn image_set(model: &Model, image: &Image) -> Value {
    let files: Vec<&str> =
        if image.uploaded { vec![image.filetype.as_str()] } else { vec!["boot-kernel", "boot-initrd", "squashfs"] };
    let count = i64::try_from(files.len()).unwrap_or(1);
    let entries: serde_json::Map<String, Value> = files
        .into_iter()
        .map(|name| {
            let sha = if image.sha256.is_empty() {
                crate::model::rng::uuid_from(model.seed, &["image", &image.series, name]).replace('-', "").repeat(2)
            } else {
                image.sha256.clone()
            };
            let mut file = json!({
                "filename": name, "filetype": name, "sha256": sha, "size": image.size / count, "complete": image.complete,
            });
            if !image.complete {
                file["progress"] = json!(2.25);
            }
            if model.version.has(Change::FilesOnDisk) {
                file["filename_on_disk"] = json!(sha.get(..7));
            }
            (name.to_owned(), file)
        })
        .collect();
    let mut set = json!({
        "version": image.version,
        "label": if image.uploaded { "uploaded" } else { "stable" },
        "size": image.size,
        "complete": image.complete,
        "files": entries,
    });
    if !image.complete {
        set["progress"] = json!(42.857_142_857_142_854);
    }
    set
}
