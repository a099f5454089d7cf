//! What a `MaasMachine` asks for, in one form whatever the dialect. Nothing downstream looks at a dialect again.

use capmaas_api::machine::{Erase, LxdSection, ProvisioningMode};
use capmaas_api::static_ip::StaticIp;
use capmaas_api::{MaasMachineSpec, ProviderId, provider_id::Scheme, reasons};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// A physical machine.
    Metal(Metal),
    /// A VM on an LXD host.
    Vm,
}

/// A physical machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metal {
    /// At least so many cores.
    pub min_cpu: Option<u32>,
    /// At least so many MB of memory.
    pub min_memory: Option<u32>,
    /// At least so many GB of disk.
    pub min_disk: Option<u32>,
    /// All of these MAAS tags.
    pub tags: Vec<String>,
    /// This resource pool.
    pub pool: Option<String>,
    /// This zone. The Machine's failure domain wins over it.
    pub zone: Option<String>,
    /// This very machine, asked for by a person.
    pub pinned: Option<String>,
    /// The image, as MAAS is asked for it.
    pub image: String,
    /// Run from memory and leave the disks alone.
    pub in_memory: bool,
    /// What happens to the disks when the machine is given back; `None` is MAAS's own setting.
    pub erase: Option<Wipe>,
}

/// What happens to the disks of a machine that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wipe {
    /// Nothing.
    Nothing,
    /// Beginning and end of each.
    Quick,
    /// By the disk's own means.
    Secure,
    /// Every block.
    Full,
}

/// A spec that cannot be acted upon. The machine is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// For programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Resolves a spec. `on_record` is true once a machine is on record, so that `systemID` no longer is a wish.
pub fn resolve(spec: &MaasMachineSpec, on_record: bool) -> Result<Intent, Problem> {
    if !spec.unreadable.is_empty() {
        return Err(Problem {
            reason: reasons::UNREADABLE_SPEC,
            message: format!("cannot read {} of the stored spec; correct it", spec.unreadable.join(", ")),
        });
    }
    let metal_said = spec.provisioning_mode == Some(ProvisioningMode::BareMetal);
    match is_vm(spec)? {
        Some(true) => return Ok(Intent::Vm),
        None if spec.parent.as_ref().is_some_and(|parent| !parent.is_empty()) => return Ok(Intent::Vm),
        // The Go provider wrote maas:// for VMs as well, so only the other scheme says anything.
        None | Some(false) if names_a_vm(spec) && !metal_said => return Ok(Intent::Vm),
        None | Some(false) => {}
    }
    if names_a_vm(spec) {
        return Err(contradiction("spec.providerID names a VM, and provisioningMode says bare-metal"));
    }
    if let Some(fixed) = &spec.static_ip {
        return Err(static_ip(fixed));
    }
    let at_least = |number: i64| u32::try_from(number).ok().filter(|number| *number > 0);
    Ok(Intent::Metal(Metal {
        min_cpu: at_least(spec.min_cpu),
        min_memory: at_least(spec.min_memory),
        min_disk: spec.min_disk_size.and_then(at_least),
        tags: spec.tags.iter().filter(|tag| !tag.is_empty()).cloned().collect(),
        pool: spec.resource_pool().map(str::to_owned),
        zone: spec.failure_domain().map(str::to_owned),
        pinned: spec.system_id().filter(|_| !on_record && spec.provider_id().is_none()).map(str::to_owned),
        image: image(&spec.image)?,
        in_memory: spec.deploy_in_memory == Some(true),
        erase: wipe(spec)?,
    }))
}

/// What the switches say; two that disagree are a contradiction, a mode that we do not know is never taken for metal.
fn is_vm(spec: &MaasMachineSpec) -> Result<Option<bool>, Problem> {
    let mode = match &spec.provisioning_mode {
        Some(ProvisioningMode::Unknown(mode)) => {
            return Err(Problem {
                reason: reasons::UNREADABLE_SPEC,
                message: format!("spec.provisioningMode is {mode:?}, which this version does not know"),
            });
        }
        Some(ProvisioningMode::Lxd) => Some(true),
        Some(ProvisioningMode::BareMetal) => Some(false),
        None => None,
    };
    let section = spec.lxd.as_ref().and_then(|LxdSection { enabled, .. }| *enabled);
    let said = [("provisioningMode", mode), ("dynamicLXD", spec.dynamic_lxd), ("lxd.enabled", section)];
    let mut answer: Option<(&str, bool)> = None;
    for (field, value) in said.into_iter().filter_map(|(field, value)| Some((field, value?))) {
        match answer {
            Some((other, before)) if before != value => {
                return Err(contradiction(&format!("spec.{other} and spec.{field} disagree on whether this is a VM")));
            }
            _ => answer = Some((field, value)),
        }
    }
    Ok(answer.map(|(_, value)| value))
}

fn names_a_vm(spec: &MaasMachineSpec) -> bool {
    let id = spec.provider_id().and_then(|id| id.parse::<ProviderId>().ok());
    id.is_some_and(|id| id.scheme() == Scheme::MaasLxd)
}

/// MAAS ignores the operating system and resolves the series by itself, so the whole name is sent.
fn image(image: &str) -> Result<String, Problem> {
    let image = image.trim();
    if image.is_empty() {
        return Err(Problem { reason: reasons::UNREADABLE_SPEC, message: "spec.image is empty".into() });
    }
    Ok(image.to_owned())
}

fn wipe(spec: &MaasMachineSpec) -> Result<Option<Wipe>, Problem> {
    Ok(Some(match spec.release.as_ref().and_then(|release| release.erase.as_ref()) {
        None => return Ok(None),
        Some(Erase::None) => Wipe::Nothing,
        Some(Erase::Quick) => Wipe::Quick,
        Some(Erase::Secure) => Wipe::Secure,
        Some(Erase::Full) => Wipe::Full,
        Some(Erase::Unknown(word)) => {
            return Err(Problem {
                reason: reasons::UNREADABLE_SPEC,
                message: format!("spec.release.erase is {word:?}, which this version does not know"),
            });
        }
    }))
}

fn static_ip(fixed: &StaticIp) -> Problem {
    let waits = match fixed {
        StaticIp::Address(address) => address.is_empty(),
        StaticIp::Detailed(details) => details.ip.as_ref().is_none_or(String::is_empty),
    };
    if waits {
        return Problem {
            reason: reasons::WAITING_FOR_STATIC_IP,
            message: "spec.staticIP has no address yet; fill it in".into(),
        };
    }
    Problem {
        reason: reasons::STATIC_IP_FAILED,
        message:
            "spec.staticIP cannot be given to bare metal by this version; remove it, or reserve the address in MAAS"
                .into(),
    }
}

fn contradiction(message: &str) -> Problem {
    Problem { reason: reasons::CONTRADICTORY_SPEC, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(yaml: serde_json::Value) -> MaasMachineSpec {
        let mut spec = serde_json::json!({ "image": "ubuntu/jammy", "minCPU": 4, "minMemory": 8192 });
        for (name, value) in yaml.as_object().unwrap() {
            spec[name] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn metal(yaml: serde_json::Value) -> Metal {
        match resolve(&spec(yaml), false).unwrap() {
            Intent::Metal(metal) => metal,
            Intent::Vm => panic!("a VM"),
        }
    }

    #[test]
    fn nothing_said_means_bare_metal() {
        let asked = metal(serde_json::json!({}));
        assert_eq!((asked.min_cpu, asked.min_memory, asked.min_disk), (Some(4), Some(8192), None));
        assert_eq!((asked.image.as_str(), asked.pinned, asked.erase), ("ubuntu/jammy", None, None));
    }

    #[test]
    fn every_dialect_of_a_vm_is_a_vm() {
        for said in [
            serde_json::json!({ "dynamicLXD": true }),
            serde_json::json!({ "provisioningMode": "lxd" }),
            serde_json::json!({ "lxd": { "enabled": true } }),
            serde_json::json!({ "parent": "abc123" }),
            serde_json::json!({ "providerID": "maas-lxd://z/abc123" }),
        ] {
            assert_eq!(resolve(&spec(said.clone()), false), Ok(Intent::Vm), "{said}");
        }
    }

    #[test]
    fn switches_that_disagree_are_named() {
        let problem =
            resolve(&spec(serde_json::json!({ "dynamicLXD": true, "provisioningMode": "bare-metal" })), false);
        let problem = problem.unwrap_err();
        assert_eq!(problem.reason, reasons::CONTRADICTORY_SPEC);
        assert!(problem.message.contains("provisioningMode") && problem.message.contains("dynamicLXD"));
    }

    #[test]
    fn an_unknown_mode_or_an_unreadable_part_is_never_taken_for_metal() {
        for said in [
            serde_json::json!({ "provisioningMode": "cloud" }),
            serde_json::json!({ "tags": "not a list" }),
            serde_json::json!({ "release": { "erase": "shred" } }),
            serde_json::json!({ "image": " " }),
        ] {
            let problem = resolve(&spec(said.clone()), false).unwrap_err();
            assert_eq!(problem.reason, reasons::UNREADABLE_SPEC, "{said}");
        }
    }

    #[test]
    fn a_system_id_is_a_wish_only_until_a_machine_is_on_record() {
        assert_eq!(metal(serde_json::json!({ "systemID": "abc123" })).pinned.as_deref(), Some("abc123"));
        let recorded = spec(serde_json::json!({ "systemID": "abc123" }));
        assert!(matches!(resolve(&recorded, true), Ok(Intent::Metal(Metal { pinned: None, .. }))));
        assert_eq!(metal(serde_json::json!({ "systemID": "a", "providerID": "maas:///z/a" })).pinned, None);
    }

    #[test]
    fn a_fixed_address_is_not_silently_left_out() {
        let of = |fixed| resolve(&spec(serde_json::json!({ "staticIP": fixed })), false).unwrap_err().reason;
        assert_eq!(of(serde_json::json!({ "cidr": "10.0.0.0/24" })), reasons::WAITING_FOR_STATIC_IP);
        assert_eq!(of(serde_json::json!("10.0.0.5")), reasons::STATIC_IP_FAILED);
    }
}
