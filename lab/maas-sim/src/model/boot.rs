//! Images and settings.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Model, Outcome, Refusal,
    db::{Image, Table},
    refusal::FormCheck,
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};
use crate::version::{Change, Version};

impl Image {
    /// A synced Ubuntu image.
    pub fn synced(id: i64, series: &str, title: &str, version: &str) -> Self {
        Self {
            id,
            uploaded: false,
            osystem: "ubuntu".to_owned(),
            series: series.to_owned(),
            architecture: "amd64".to_owned(),
            title: title.to_owned(),
            complete: true,
            on_racks: true,
            size: 5250,
            sha256: String::new(),
            filetype: "squashfs".to_owned(),
            version: version.to_owned(),
            last_deployed: None,
        }
    }

    /// Its default kernel.
    pub fn kernel(&self) -> String {
        let number = match self.series.as_str() {
            "bionic" => "18.04",
            "focal" => "20.04",
            "noble" => "24.04",
            _ => "22.04",
        };
        format!("ga-{number}")
    }
}

/// The parameters of an image upload.
#[derive(Clone, Debug, Default)]
pub struct Upload {
    pub name: Option<String>,
    pub architecture: Option<String>,
    pub sha256: Option<String>,
    pub size: Option<String>,
    pub title: Option<String>,
    pub filetype: Option<String>,
    pub content: Option<Vec<u8>>,
}

impl Model {
    /// The possible architectures of machines: those with Ubuntu images, whatever their kernels.
    pub fn usable_architectures(&self) -> Vec<String> {
        let of = |image: &Image| format!("{}/generic", image.architecture.split('/').next().unwrap_or_default());
        let mut all: Vec<String> = self.db.images.values().filter(|image| !image.uploaded).map(of).collect();
        all.sort();
        all.dedup();
        all
    }

    /// `POST boot-resources/`.
    pub fn upload_image(&mut self, upload: &Upload) -> Outcome<i64> {
        let mut check = FormCheck::default();
        let name = check.require("name", upload.name.as_deref());
        let architecture = check.require("architecture", upload.architecture.as_deref());
        if upload.content.is_none() {
            check.require("sha256", upload.sha256.as_deref());
            check.require("size", upload.size.as_deref());
        }
        check.done()?;
        let (Some(name), Some(architecture)) = (name, architecture) else { return Err(Refusal::required("name")) };
        if !architecture.contains('/') {
            return Err(Refusal::field(
                "architecture",
                format!("'{architecture}' is not a valid architecture.  It should be one of: 'amd64/generic'."),
            ));
        }
        let (osystem, series) = name.split_once('/').unwrap_or(("custom", name));
        let given: Option<i64> = upload.size.as_deref().and_then(|size| size.parse().ok());
        let received = upload.content.as_ref().map(|content| i64::try_from(content.len()).unwrap_or(i64::MAX));
        let size = given.or(received).unwrap_or(0);
        let existing =
            self.db.images.values().find(|image| image.osystem == osystem && image.series == series).map(|i| i.id);
        let id = existing.unwrap_or_else(|| self.db.sequences.take(Table::Image));
        let filetype = match upload.filetype.as_deref().unwrap_or("tgz") {
            "tgz" => "root-tgz".to_owned(),
            "tbz" => "root-tbz".to_owned(),
            "txz" => "root-txz".to_owned(),
            other => format!("root-{other}"),
        };
        let image = Image {
            id,
            uploaded: true,
            osystem: osystem.to_owned(),
            series: series.to_owned(),
            architecture: architecture.to_owned(),
            title: upload.title.clone().unwrap_or_default(),
            complete: received.is_none_or(|received| received >= size) && upload.content.is_some(),
            on_racks: true,
            size,
            sha256: upload.sha256.clone().unwrap_or_default(),
            filetype,
            version: self.now.strftime("%Y%m%d").to_string(),
            last_deployed: None,
        };
        self.db.images.insert(id, image);
        self.effect(Effect::object(ObjectKind::Image, name, ObjectChange::Created));
        Ok(id)
    }
}

/// The names of all settings, in MAAS's order: its refusal lists them.
pub fn setting_names(version: Version) -> Vec<&'static str> {
    let more = version.has(Change::MoreSettings);
    SETTING_NAMES
        .iter()
        .flat_map(|name| {
            let next = NEWER_SETTINGS.iter().find(|(after, _)| after == name).filter(|_| more);
            std::iter::once(*name).chain(next.map(|(_, newer)| *newer))
        })
        .collect()
}

/// Settings that were added later, each after the one that it follows in the list.
const NEWER_SETTINGS: &[(&str, &str)] = &[
    ("ntp_external_only", "allow_only_trusted_transfers"),
    ("active_discovery_interval", "default_boot_interface_link_type"),
    ("default_min_hwe_kernel", "enable_kernel_crash_dump"),
    ("max_node_installation_results", "max_node_release_results"),
];

const SETTING_NAMES: &[&str] = &[
    "maas_name",
    "theme",
    "kernel_opts",
    "enable_http_proxy",
    "maas_proxy_port",
    "use_peer_proxy",
    "prefer_v4_proxy",
    "http_proxy",
    "default_dns_ttl",
    "upstream_dns",
    "dnssec_validation",
    "maas_internal_domain",
    "dns_trusted_acl",
    "ntp_servers",
    "ntp_external_only",
    "remote_syslog",
    "maas_syslog_port",
    "network_discovery",
    "active_discovery_interval",
    "default_osystem",
    "default_distro_series",
    "default_min_hwe_kernel",
    "default_storage_layout",
    "commissioning_distro_series",
    "enable_third_party_drivers",
    "windows_kms_host",
    "enable_disk_erasing_on_release",
    "disk_erase_with_secure_erase",
    "disk_erase_with_quick_erase",
    "boot_images_auto_import",
    "boot_images_no_proxy",
    "curtin_verbose",
    "force_v1_network_yaml",
    "enable_analytics",
    "completed_intro",
    "max_node_commissioning_results",
    "max_node_testing_results",
    "max_node_installation_results",
    "subnet_ip_exhaustion_threshold_count",
    "release_notifications",
    "use_rack_proxy",
    "node_timeout",
    "prometheus_enabled",
    "prometheus_push_gateway",
    "prometheus_push_interval",
    "promtail_enabled",
    "promtail_port",
    "enlist_commissioning",
    "maas_auto_ipmi_user",
    "maas_auto_ipmi_user_privilege_level",
    "maas_auto_ipmi_k_g_bmc_key",
    "maas_auto_ipmi_cipher_suite_id",
    "maas_auto_ipmi_workaround_flags",
    "vcenter_server",
    "vcenter_username",
    "vcenter_password",
    "vcenter_datacenter",
    "hardware_sync_interval",
    "tls_cert_expiration_notification_enabled",
    "tls_cert_expiration_notification_interval",
    "session_length",
    "auto_vlan_creation",
];

/// The settings of a fresh installation.
pub fn default_settings(version: Version) -> BTreeMap<String, Value> {
    let series = if version.has(Change::NobleByDefault) { "noble" } else { "jammy" };
    [
        ("maas_name", json!("maas-sim")),
        ("default_osystem", json!("ubuntu")),
        ("default_distro_series", json!(series)),
        ("commissioning_distro_series", json!(series)),
        ("default_min_hwe_kernel", json!("")),
        ("default_storage_layout", json!("flat")),
        ("default_dns_ttl", json!(30)),
        ("enable_disk_erasing_on_release", json!(false)),
        ("disk_erase_with_secure_erase", json!(false)),
        ("disk_erase_with_quick_erase", json!(false)),
        ("node_timeout", json!(30)),
        ("upstream_dns", json!(null)),
        ("ntp_servers", json!("ntp.ubuntu.com")),
        ("kernel_opts", json!("")),
        ("hardware_sync_interval", json!("15m")),
        ("completed_intro", json!(true)),
        ("enable_http_proxy", json!(true)),
        ("http_proxy", json!(null)),
        ("theme", json!("")),
        ("maas_proxy_port", json!(8000)),
        ("use_peer_proxy", json!(false)),
        ("prefer_v4_proxy", json!(false)),
        ("dnssec_validation", json!("auto")),
        ("maas_internal_domain", json!("maas-internal")),
        ("ntp_external_only", json!(false)),
        ("maas_syslog_port", json!(5247)),
        ("network_discovery", json!("enabled")),
        ("active_discovery_interval", json!(10800)),
        ("enable_third_party_drivers", json!(true)),
        ("boot_images_auto_import", json!(true)),
        ("boot_images_no_proxy", json!(false)),
        ("curtin_verbose", json!(true)),
        ("force_v1_network_yaml", json!(false)),
        ("enable_analytics", json!(true)),
        ("max_node_commissioning_results", json!(10)),
        ("max_node_testing_results", json!(10)),
        ("max_node_installation_results", json!(3)),
        ("subnet_ip_exhaustion_threshold_count", json!(16)),
        ("release_notifications", json!(true)),
        ("use_rack_proxy", json!(true)),
        ("prometheus_enabled", json!(false)),
        ("prometheus_push_interval", json!(60)),
        ("promtail_enabled", json!(false)),
        ("promtail_port", json!(5238)),
        ("enlist_commissioning", json!(true)),
        ("maas_auto_ipmi_user", json!("maas")),
        ("maas_auto_ipmi_user_privilege_level", json!("ADMIN")),
        ("tls_cert_expiration_notification_enabled", json!(false)),
        ("tls_cert_expiration_notification_interval", json!(30)),
        ("session_length", json!(1_209_600)),
        ("auto_vlan_creation", json!(true)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
