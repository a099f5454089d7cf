//! What the API server refuses, and with which sentence.
//!
//! The rules are CEL that every API server from 1.29 on compiles (no `ip()`, `cidr()`, `quantity()`, no
//! `optionalOldSelf`, no ratcheting to rely on). The API server checks the whole object on every write, also when only
//! a finalizer is taken off. A rule that refused an object which the Go provider stored would make it impossible to
//! delete, so each rule says in [`Rule::why_stored_objects_pass`] why it cannot (S24). There are three ways:
//!
//! - the rule needs a field that the Go provider never had ([`NEW_CLUSTER_FIELDS`], [`NEW_MACHINE_FIELDS`]);
//! - the rule compares with the stored object (`oldSelf`), so what does not change passes;
//! - the schema of the Go provider had the same restriction.
//!
//! The schemas themselves are nowhere stricter than the Go provider's (`tests/go_provider_schema.rs`), with one exception
//! that server-side apply needs: a list of conditions holds at most one of each type. The Go provider's library keeps to
//! that by itself.
//!
//! For a newly made object that uses only fields of the Go provider, the policy in `config/policy` says the same where
//! the API server serves policies (1.30 and later).

use crate::{machine::MINIMUM_VM_MEMORY_MB, size};

/// Fields of `MaasCluster.spec` that the Go provider never stored.
pub const NEW_CLUSTER_FIELDS: [&str; 4] =
    ["discoverFailureDomains", "identityRef", "lxdControlPlaneCluster", "preferredSubnets"];
/// Fields of `MaasMachine.spec` that the Go provider never stored (`staticIP` has no type, so rules cannot see it).
pub const NEW_MACHINE_FIELDS: [&str; 5] = ["dynamicLXD", "lxdConfig", "nodeLabels", "provisioningMode", "release"];

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Field below `spec` that the rule stands at; empty for `spec` itself.
    pub at: &'static [&'static str],
    /// The CEL expression.
    pub expression: String,
    /// What is wrong and what to do. It names the field itself: 1.29 mixes up the paths when several rules name theirs.
    pub message: &'static str,
    /// Why it accepts every object that the Go provider could have stored.
    pub why_stored_objects_pass: &'static str,
}

impl Rule {
    /// Whether the rule compares with the stored object. Templates do not get such rules: a server-side-apply dry run of
    /// Cluster API's topology controller changes a template in thought only, and must pass.
    pub fn is_transition(&self) -> bool {
        self.expression.contains("oldSelf")
    }
}

const USES_NEW_FIELD: &str = "needs a field that the Go provider did not have";
const COMPARES: &str = "compares with the stored object, so what does not change passes";

const SIZE_MESSAGE: &str = "lxdConfig.storageSize is not a size; write a number of GB such as 50, or a number with a unit such as 50GB or 50GiB";
const BACKEND_MESSAGE: &str = "lxdConfig.storageBackend is none of zfs, btrfs, lvm and dir; use one of these";
const BRIDGE_MESSAGE: &str = "lxdConfig.networkBridge is not the name of an interface; use at most 15 letters, digits, dots, dashes and underscores, such as br0";
const PORT_MESSAGE: &str = "controlPlaneEndpoint.port must be between 1 and 65535; use the port of the API server, usually 6443, or leave controlPlaneEndpoint out";
const HOST_MESSAGE: &str = "controlPlaneEndpoint.host is neither a DNS name nor an address; write it without scheme, port and brackets, such as api.example.com or 10.0.0.10";
const IPV4_MESSAGE: &str = "controlPlaneEndpoint.host looks like an IPv4 address but is none; write four numbers from 0 to 255 with dots between";

/// An IPv4 address, without anchors.
const IPV4: &str = "((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])";
/// A DNS name or IPv6 address, anchored.
const HOST: &str = "^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$|^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$";
const INTERFACE_NAME: &str = "^[A-Za-z0-9._-]+$";
/// The name of a label: at most 63 characters, after a DNS name and a slash if there is one.
const LABEL_NAME: &str = "^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$";
const LABEL_VALUE: &str = "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$";
const STORAGE_BACKENDS: &str = "['zfs', 'btrfs', 'lvm', 'dir']";

/// Any of the fields that the Go provider did not have is there.
fn has_any(of: &str, fields: &[&str]) -> String {
    let terms: Vec<String> = fields.iter().map(|field| format!("has({of}.{field})")).collect();
    format!("({})", terms.join(" || "))
}

/// Says that it is a VM, in a dialect that the Go provider did not have.
const SAYS_VM: &str =
    "((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD))";
/// Says that it is metal, in a dialect that the Go provider did not have.
const SAYS_METAL: &str = "((has(self.provisioningMode) && self.provisioningMode == 'bare-metal') || (has(self.dynamicLXD) && !self.dynamicLXD))";
const HAD_PROVIDER_ID: &str = "(has(oldSelf.providerID) && oldSelf.providerID != '')";

/// Is a VM, in any dialect.
fn is_vm(of: &str) -> String {
    format!(
        "((has({of}.provisioningMode) && {of}.provisioningMode == 'lxd') || (has({of}.dynamicLXD) && {of}.dynamicLXD) || \
         (has({of}.lxd) && has({of}.lxd.enabled) && {of}.lxd.enabled))"
    )
}

/// Regular expressions go into CEL as raw text.
fn matches(value: &str, pattern: &str) -> String {
    format!("{value}.matches(r'{pattern}')")
}

fn rule(expression: impl Into<String>, message: &'static str, why: &'static str) -> Rule {
    Rule { at: &[], expression: expression.into(), message, why_stored_objects_pass: why }
}

impl Rule {
    fn at(mut self, at: &'static [&'static str]) -> Self {
        self.at = at;
        self
    }
}

/// The rules of `MaasCluster.spec`, and, those that do not compare, of `MaasClusterTemplate.spec.template.spec`.
pub fn cluster() -> Vec<Rule> {
    let new = has_any("self", &NEW_CLUSTER_FIELDS);
    let endpoint = "self.controlPlaneEndpoint";
    let no_endpoint = format!("!has({endpoint}) || ({endpoint}.host == '' && {endpoint}.port == 0)");
    let same = |field: &str| {
        format!("(has(oldSelf.controlPlaneEndpoint) && oldSelf.controlPlaneEndpoint.{field} == {endpoint}.{field})")
    };
    let port = format!("({endpoint}.port >= 1 && {endpoint}.port <= 65535)");
    let host = format!("{endpoint}.host == '' || {}", matches(&format!("{endpoint}.host"), HOST));
    let ipv4 = format!(
        "!{} || {}",
        matches(&format!("{endpoint}.host"), "^[0-9.]+$"),
        matches(&format!("{endpoint}.host"), &format!("^{IPV4}$"))
    );
    let lxd = |field: &str, test: &str| {
        format!(
            "!{new} || !has(self.lxdConfig) || !has(self.lxdConfig.{field}) || self.lxdConfig.{field} == '' || {test}"
        )
    };
    let changed = |test: &str| format!("self == oldSelf || self == '' || {test}");
    let bridge = |value: &str| format!("(size({value}) <= 15 && {})", matches(value, INTERFACE_NAME));
    vec![
        rule("self == oldSelf", "dnsDomain cannot change, because the name of the API server ends with it; make a new cluster for another domain", COMPARES)
            .at(&["dnsDomain"]),
        rule(
            "!(has(self.lxdControlPlaneCluster) && self.lxdControlPlaneCluster && has(self.lxdConfig) && has(self.lxdConfig.enabled) && !self.lxdConfig.enabled)",
            "lxdControlPlaneCluster: true and lxdConfig.enabled: false contradict each other; remove one, or set lxdConfig.enabled: true",
            USES_NEW_FIELD,
        ),
        rule(
            "!(has(self.lxdControlPlaneCluster) && !self.lxdControlPlaneCluster && has(self.lxdConfig) && has(self.lxdConfig.enabled) && self.lxdConfig.enabled)",
            "lxdControlPlaneCluster: false and lxdConfig.enabled: true contradict each other; remove one, or set lxdControlPlaneCluster: true",
            USES_NEW_FIELD,
        ),
        rule(
            format!("self.all(subnet, {} || {})", matches("subnet", &format!("^{IPV4}/(3[0-2]|[12]?[0-9])$")), matches("subnet", "^[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])$")),
            "preferredSubnets holds something that is not a network; write each as address/prefix, such as 10.0.0.0/16 or fd00:10::/64",
            USES_NEW_FIELD,
        )
        .at(&["preferredSubnets"]),
        rule(
            matches("self", "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"),
            "identityRef.name is not the name of a Secret; use lower-case letters, digits, dashes and dots, such as maas-team-a",
            USES_NEW_FIELD,
        )
        .at(&["identityRef", "name"]),
        rule(
            matches("self", "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"),
            "identityRef.namespace is not the name of a namespace; use lower-case letters, digits and dashes, or leave it out for the cluster's own",
            USES_NEW_FIELD,
        )
        .at(&["identityRef", "namespace"]),
        rule(
            format!("!{new} || !has(self.failureDomains) || self.failureDomains.all(zone, size(zone) > 0)"),
            "failureDomains holds an empty name; write the name of a MAAS zone, or remove the entry",
            USES_NEW_FIELD,
        ),
        rule(format!("!{new} || {no_endpoint} || {port}"), PORT_MESSAGE, USES_NEW_FIELD),
        rule(format!("{no_endpoint} || {} || {port}", same("port")), PORT_MESSAGE, COMPARES),
        rule(format!("!{new} || {no_endpoint} || {host}"), HOST_MESSAGE, USES_NEW_FIELD),
        rule(format!("{no_endpoint} || {} || {host}", same("host")), HOST_MESSAGE, COMPARES),
        rule(format!("!{new} || {no_endpoint} || {ipv4}"), IPV4_MESSAGE, USES_NEW_FIELD),
        rule(format!("{no_endpoint} || {} || {ipv4}", same("host")), IPV4_MESSAGE, COMPARES),
        rule(lxd("storageSize", &matches("self.lxdConfig.storageSize", size::PATTERN)), SIZE_MESSAGE, USES_NEW_FIELD),
        rule(changed(&matches("self", size::PATTERN)), SIZE_MESSAGE, COMPARES).at(&["lxdConfig", "storageSize"]),
        rule(lxd("storageBackend", &format!("self.lxdConfig.storageBackend in {STORAGE_BACKENDS}")), BACKEND_MESSAGE, USES_NEW_FIELD),
        rule(changed(&format!("self in {STORAGE_BACKENDS}")), BACKEND_MESSAGE, COMPARES).at(&["lxdConfig", "storageBackend"]),
        rule(lxd("networkBridge", &bridge("self.lxdConfig.networkBridge")), BRIDGE_MESSAGE, USES_NEW_FIELD),
        rule(changed(&bridge("self")), BRIDGE_MESSAGE, COMPARES).at(&["lxdConfig", "networkBridge"]),
    ]
}

/// The rules of `MaasMachine.spec`, and, those that do not compare, of `MaasMachineTemplate.spec.template.spec`.
pub fn machine() -> Vec<Rule> {
    let mut rules = machine_contradictions();
    rules.extend(machine_values());
    rules.extend(machine_transitions());
    rules
}

fn machine_contradictions() -> Vec<Rule> {
    let mode = |value: &str| format!("has(self.provisioningMode) && self.provisioningMode == '{value}'");
    let dynamic = |value: &str| format!("has(self.dynamicLXD) && {value}self.dynamicLXD");
    let enabled = |value: &str| format!("has(self.lxd) && has(self.lxd.enabled) && {value}self.lxd.enabled");
    let both = |a: &str, b: &str, message| rule(format!("!({a} && {b})"), message, USES_NEW_FIELD);
    vec![
        both(
            &dynamic(""),
            &mode("bare-metal"),
            "dynamicLXD: true and provisioningMode: bare-metal contradict each other; remove one, or set provisioningMode: lxd",
        ),
        both(
            &dynamic("!"),
            &mode("lxd"),
            "dynamicLXD: false and provisioningMode: lxd contradict each other; remove one, or set dynamicLXD: true",
        ),
        both(
            &enabled(""),
            &mode("bare-metal"),
            "lxd.enabled: true and provisioningMode: bare-metal contradict each other; remove one, or set provisioningMode: lxd",
        ),
        both(
            &enabled("!"),
            &mode("lxd"),
            "lxd.enabled: false and provisioningMode: lxd contradict each other; remove one, or set lxd.enabled: true",
        ),
        both(
            &enabled("!"),
            &dynamic(""),
            "lxd.enabled: false and dynamicLXD: true contradict each other; remove one, or set lxd.enabled: true",
        ),
        both(
            &enabled(""),
            &dynamic("!"),
            "lxd.enabled: true and dynamicLXD: false contradict each other; remove one, or set dynamicLXD: true",
        ),
        rule(
            format!("!has(self.lxdConfig) || !({SAYS_METAL} || ({}))", enabled("!")),
            "lxdConfig holds settings of a VM, but this machine says that it is bare metal; remove lxdConfig, or make it a VM with provisioningMode: lxd",
            USES_NEW_FIELD,
        ),
        rule(
            format!("!{SAYS_METAL} || !has(self.lxd) || !has(self.lxd.vmConfig)"),
            "lxd.vmConfig holds settings of a VM, but this machine says that it is bare metal; remove lxd.vmConfig, or make it a VM with provisioningMode: lxd",
            USES_NEW_FIELD,
        ),
        rule(
            format!("!{SAYS_METAL} || !has(self.parent) || self.parent == ''"),
            "parent names the host of a VM, but this machine says that it is bare metal; remove parent, or make it a VM with provisioningMode: lxd",
            USES_NEW_FIELD,
        ),
        rule(
            format!("!{SAYS_VM} || !has(self.deployInMemory) || !self.deployInMemory"),
            "deployInMemory: true works on physical machines only, but this machine says that it is a VM; remove deployInMemory, or set provisioningMode: bare-metal",
            USES_NEW_FIELD,
        ),
    ]
}

fn machine_values() -> Vec<Rule> {
    vec![
        rule(format!("!{SAYS_VM} || self.minCPU >= 1"), "minCPU is the number of cores of a VM and must be at least 1; set minCPU: 1 or more", USES_NEW_FIELD),
        rule(
            format!("!{SAYS_VM} || self.minMemory >= {MINIMUM_VM_MEMORY_MB}"),
            "minMemory is the memory of a VM in MB and MAAS makes none with less than 1024; set minMemory: 1024 or more",
            USES_NEW_FIELD,
        ),
        rule(
            format!("!{SAYS_VM} || !has(self.lxd) || !has(self.lxd.vmConfig) || !has(self.lxd.vmConfig.diskSize) || self.lxd.vmConfig.diskSize >= 1"),
            "lxd.vmConfig.diskSize is the disk of a VM in GB and must be at least 1; set a larger number, or remove it to get 60",
            USES_NEW_FIELD,
        ),
        rule(
            format!("{} && {}", matches("self", size::PATTERN), matches("self", "[1-9]")),
            "lxdConfig.storage.size is not a size; write a number of GB such as 50, or a number with a unit such as 50GB or 50GiB",
            USES_NEW_FIELD,
        )
        .at(&["lxdConfig", "storage", "size"]),
        rule(
            matches("self", INTERFACE_NAME),
            "lxdConfig.network.bridge is not the name of an interface; use at most 15 letters, digits, dots, dashes and underscores, such as br0",
            USES_NEW_FIELD,
        )
        .at(&["lxdConfig", "network", "bridge"]),
        rule(
            format!("self.all(name, {})", matches("name", LABEL_NAME)),
            "nodeLabels holds a name that no label can have; use letters, digits, dashes, dots and underscores, after a domain and a slash if there is one, such as example.com/rack",
            USES_NEW_FIELD,
        )
        .at(&["nodeLabels"]),
        rule(
            format!("self.all(name, {})", matches("self[name]", LABEL_VALUE)),
            "nodeLabels holds a value that no label can have; use at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at both ends",
            USES_NEW_FIELD,
        )
        .at(&["nodeLabels"]),
    ]
}

fn machine_transitions() -> Vec<Rule> {
    vec![
        rule("self == oldSelf", "image cannot change, because a machine is never deployed anew; make a template with the new image and roll it out", COMPARES)
            .at(&["image"]),
        rule("self == oldSelf", "minCPU cannot change, because a machine keeps its size; make a template with the new size and roll it out", COMPARES)
            .at(&["minCPU"]),
        rule("self == oldSelf", "minMemory cannot change, because a machine keeps its size; make a template with the new size and roll it out", COMPARES)
            .at(&["minMemory"]),
        // Taking it away is allowed: the Go provider did so after a failed deployment, and may still be running.
        rule(
            "self == oldSelf || self == '' || oldSelf == ''",
            "providerID cannot be replaced, because a Node carries it; delete the Machine to get another one",
            COMPARES,
        )
        .at(&["providerID"]),
        rule(
            format!(
                "!{HAD_PROVIDER_ID} || !has(oldSelf.systemID) || oldSelf.systemID == '' || !has(self.systemID) || self.systemID == '' || self.systemID == oldSelf.systemID"
            ),
            "systemID cannot be replaced once the machine has a providerID; delete the Machine to get another one",
            COMPARES,
        ),
        rule(
            format!("!{HAD_PROVIDER_ID} || {} == {}", is_vm("self"), is_vm("oldSelf")),
            "a machine cannot turn from metal into a VM or back once it has a providerID; make a template with the other provisioningMode and roll it out",
            COMPARES,
        ),
        rule(
            format!(
                "!{HAD_PROVIDER_ID} || (has(self.lxdConfig) == has(oldSelf.lxdConfig) && (!has(self.lxdConfig) || self.lxdConfig == oldSelf.lxdConfig))"
            ),
            "lxdConfig cannot change once the machine has a providerID, because a VM keeps its settings; make a template with the new settings and roll it out",
            COMPARES,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_tells_what_to_do_and_why_stored_objects_pass() {
        for rule in cluster().into_iter().chain(machine()) {
            assert!(rule.message.contains("; "), "no advice in: {}", rule.message);
            assert_eq!(rule.is_transition(), rule.why_stored_objects_pass == COMPARES, "{}", rule.expression);
        }
    }

    #[test]
    fn s24_a_rule_that_looks_at_values_needs_a_field_that_the_go_provider_did_not_have() {
        for (rules, new) in [(cluster(), &NEW_CLUSTER_FIELDS[..]), (machine(), &NEW_MACHINE_FIELDS[..])] {
            for rule in rules.into_iter().filter(|rule| !rule.is_transition()) {
                let inside = rule.at.first().is_some_and(|field| new.contains(field));
                let asks = new.iter().any(|field| rule.expression.contains(&format!("has(self.{field})")));
                assert!(inside || asks, "{}", rule.expression);
            }
        }
    }
}
