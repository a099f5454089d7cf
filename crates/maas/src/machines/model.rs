//! The parts of MAAS's machine objects that are used.

use std::collections::BTreeMap;

use super::status::{MachineStatus, PowerState};
use crate::domains::Domain;
use crate::interfaces::Interface;
use crate::pools::Pool;
use crate::tolerant::wire_type;
use crate::zones::Zone;

wire_type! {
    /// A machine.
    Machine {
        required {
            /// The id of a machine, for as long as it is in MAAS.
            system_id: String,
        }
        /// The first label of its name.
        hostname: Option<String>,
        /// Its fully qualified name.
        fqdn: Option<String>,
        /// Its status. None means that MAAS did not report one, which matches no status.
        status: Option<MachineStatus>,
        /// The name of the status.
        status_name: Option<String>,
        /// The last event. Not a reason.
        status_message: Option<String>,
        /// Why it failed (from 3.5).
        error_description: Option<String>,
        /// Its owner.
        owner: Option<String>,
        /// The owner's annotations, under their older name.
        owner_data: BTreeMap<String, String>,
        /// Annotations of the owner; MAAS clears them when the machine becomes Ready.
        workload_annotations: BTreeMap<String, String>,
        /// What MAAS last observed: up to five minutes old, and stale right after a deployment began.
        power_state: Option<PowerState>,
        /// The power driver.
        power_type: Option<String>,
        /// Whether it is protected from release and deletion.
        locked: Option<bool>,
        /// `ubuntu`, `custom`, …; empty while nothing is deployed.
        osystem: Option<String>,
        /// `jammy`, …; for a VM host what its LXD reports.
        distro_series: Option<String>,
        /// The kernel.
        hwe_kernel: Option<String>,
        /// `amd64/generic`.
        architecture: Option<String>,
        /// Cores.
        cpu_count: Option<i64>,
        /// MiB.
        memory: Option<i64>,
        /// MB, 10⁶ bytes.
        storage: Option<f64>,
        /// Bytes.
        swap_size: Option<i64>,
        /// Free text.
        description: Option<String>,
        /// Its zone.
        zone: Option<Zone>,
        /// Its pool.
        pool: Option<Pool>,
        /// Its domain.
        domain: Option<Domain>,
        /// Its addresses; while Ready or Allocated also those that were only observed, which may not be the final ones.
        ip_addresses: Vec<String>,
        /// Its interfaces.
        interface_set: Vec<Interface>,
        /// The interface it boots from.
        boot_interface: Option<Interface>,
        /// Its disks.
        blockdevice_set: Vec<BlockDevice>,
        /// Its default gateways.
        default_gateways: Option<DefaultGateways>,
        /// Its tags.
        tag_names: Vec<String>,
        /// The VM host it runs on, if it is a VM.
        pod: Option<PodReference>,
        /// The id of the VM, if it is a VM.
        virtualmachine_id: Option<i64>,
        /// The machine that its VM host runs on (from 3.3).
        parent: Option<MachineReference>,
        /// Whether its next boot is from the network.
        netboot: Option<bool>,
        /// Whether it was deployed into memory (from 3.3).
        ephemeral_deploy: Option<bool>,
        /// Whether it reports its hardware periodically (from 3.3).
        enable_hw_sync: Option<bool>,
        /// `uefi`, `pxe`, …
        bios_boot_method: Option<String>,
        /// The UUID of its hardware.
        hardware_uuid: Option<String>,
    }
}

impl Machine {
    /// Whether the machine is a VM of a VM host.
    pub fn is_vm(&self) -> bool {
        self.pod.is_some()
    }

    /// Whether its status is this one. An absent status matches none.
    pub fn is(&self, status: MachineStatus) -> bool {
        self.status == Some(status)
    }
}

wire_type! {
    /// A VM host, as a machine refers to it.
    PodReference {
        required {
            /// The id of the VM host.
            id: i64,
        }
        /// Its name, which is not unique.
        name: Option<String>,
    }
}

wire_type! {
    /// A machine, as others refer to it.
    MachineReference {
        required {
            /// The id.
            system_id: String,
        }
    }
}

wire_type! {
    /// A disk.
    BlockDevice {
        required {
            /// The id.
            id: i64,
        }
        /// `sda`, …
        name: Option<String>,
        /// `physical` or `virtual`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// Bytes.
        size: Option<i64>,
        /// A stable path.
        id_path: Option<String>,
        /// The vendor's model name.
        model: Option<String>,
        /// The vendor's serial number.
        serial: Option<String>,
        /// `ssd`, `rotary`, …
        tags: Vec<String>,
        /// The storage pool of the VM host that it is in.
        storage_pool: Option<String>,
    }
}

wire_type! {
    /// The gateways of a machine.
    DefaultGateways {
        /// For IPv4.
        ipv4: Option<Gateway>,
        /// For IPv6.
        ipv6: Option<Gateway>,
    }
}

wire_type! {
    /// A gateway.
    Gateway {
        /// Its address.
        gateway_ip: Option<String>,
        /// The link that was chosen for it; None if MAAS chose it.
        link_id: Option<i64>,
    }
}

/// An answer of a power driver.
#[derive(Debug, serde::Deserialize)]
pub(super) struct PowerAnswer {
    pub(super) state: PowerState,
}
