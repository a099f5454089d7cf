//! Machines that really boot: LXD system containers with systemd, cloud-init, containerd and kubelet, in a network of their own that this
//! machine has an address in.
//!
//! Each is one machine of a MAAS that boots what it deploys: it is made from a [`NodeImage`] at each deployment, runs as long as its
//! power is on, and is gone when it is erased. Whatever ends the process that started them, they end too (see [`crate::Sandbox`]).

mod containers;
mod host;
mod image;

pub use self::{
    host::{Machine, NodeHost, has_cgroup_1},
    image::{BUSYBOX_IMAGE, KUBERNETES, NodeImage, OLDER_KUBERNETES},
};

/// A network plugin for clusters of such machines, to be applied to a cluster whose API server answers.
pub const NETWORK_PLUGIN: &str = include_str!("network.yaml");
