//! Machines that really boot: LXD system containers with systemd, cloud-init, containerd and kubelet, in their own
//! network, in which this machine has an address.
//!
//! Each is one machine of a MAAS that boots what it deploys: it is created from a [`NodeImage`] at each deployment,
//! runs while its power is on, and is deleted when it is erased. However the process that started them ends, they end
//! too (see [`crate::Sandbox`]).

mod containers;
mod host;
mod image;

pub use self::{
    host::{Machine, NodeHost, has_cgroup_1},
    image::{BUSYBOX_IMAGE, KUBERNETES, NodeImage, OLDER_KUBERNETES},
};

/// A network plugin for clusters of such machines, to apply once the cluster's API server answers.
pub const NETWORK_PLUGIN: &str = include_str!("network.yaml");
