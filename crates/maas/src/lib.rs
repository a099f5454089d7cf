//! A client of the MAAS 2.0 API that is safe to use with real servers.
//!
//! [MAAS](https://maas.io) provides bare-metal machines and LXD virtual machines. Its API can wipe a server, so this
//! client is careful where it matters:
//!
//! - **Unknown is not absent.** Only MAAS's own answer about that exact id is [`ErrorKind::NotFound`]; a 404 of a
//!   proxy, a 403 or a missing entry in a list never is.
//! - **Errors say what the caller can do**: see [`ErrorKind`]. [`Error::effect`] says whether a failed request may
//!   still have had its effect.
//! - **Only reads are retried**, with back-off and jitter, each attempt with its own nonce. Allocating, composing and
//!   creating never are.
//! - **Every request has a deadline**, counted from when it is sent, and the number of requests in flight to a server
//!   is limited. A write that cannot be sent soon is not sent at all.
//! - **No secret** appears in any `Debug`, `Display` or log, not even if a server repeats it.
//! - Works with MAAS 3.0 to 3.8; the differences are in [`Capabilities`].
//!
//! ```no_run
//! use maas_client::{Allocate, Client, Deploy, ErrorKind, MachineFilter};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // The program chooses the cryptography, once:
//! // rustls::crypto::ring::default_provider().install_default()
//! let client = Client::builder("http://maas.example:5240/MAAS", "consumer:token:secret").build()?;
//!
//! for machine in client.machines().list(&MachineFilter::default()).await? {
//!     println!("{} {:?}", machine.system_id, machine.status);
//! }
//!
//! let wanted = Allocate { min_cpu_count: Some(8), agent_name: Some("job-17".into()), ..Allocate::metal() };
//! match client.machines().allocate(&wanted).await {
//!     Ok(machine) => {
//!         let jammy = Deploy { distro_series: Some("jammy".into()), ..Deploy::default() };
//!         client.machines().deploy(&machine.system_id, &jammy).await?;
//!     }
//!     Err(error) if error.kind() == ErrorKind::NoMatch => println!("nothing is free"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Requests are sent through a [`transport::Transport`], a tower service of complete requests and responses: over the
//! network by default, or to a service in the same process, which is how the client is tested and simulated.

#![warn(missing_docs)]

mod api_key;
mod boot_resources;
mod breaker;
mod call;
mod classify;
mod client;
mod compose;
mod decode;
mod dns_resources;
mod domains;
mod endpoint;
mod environment;
mod error;
mod events;
mod fabrics;
mod interfaces;
mod ip_addresses;
mod ip_ranges;
mod limiter;
mod machines;
mod oauth;
mod observer;
mod pools;
mod redaction;
mod retry;
mod subnets;
mod tags;
mod tolerant;
pub mod transport;
mod users;
mod version;
mod vlans;
mod vm_hosts;
mod weight;
mod zones;

pub use api_key::{ApiKey, ApiKeyError};
pub use boot_resources::{BootResource, BootResourceKind, BootResources};
pub use breaker::Breaker;
pub use client::{BuildError, Client, ClientBuilder};
pub use compose::{Compose, ComposeDisk, ComposeInterface};
pub use dns_resources::{DnsFilter, DnsResource, DnsResources, ResourceRecord};
pub use domains::{Domain, Domains};
pub use endpoint::{Endpoint, EndpointError};
pub use environment::{Environment, SystemEnvironment};
pub use error::{Effect, Error, ErrorKind, Result};
pub use events::{Event, EventLevel, EventPage, EventQuery, Events, MAX_EVENTS};
pub use fabrics::{Fabric, Fabrics};
pub use interfaces::{DiscoveredAddress, Interface, InterfaceLink, Interfaces, Link, LinkMode, NewBridge};
pub use ip_addresses::{AddressHolder, IpAddress, IpAddressFilter, IpAddresses};
pub use ip_ranges::{IpRange, IpRanges};
pub use limiter::{DEFAULT_CONCURRENCY, Limiter};
pub use machines::{
    Allocate, BlockDevice, DefaultGateways, Deploy, Erase, Gateway, Machine, MachineFilter, MachineReference,
    MachineStatus, MachineUpdate, Machines, PodReference, PowerState, Release, is_system_id,
};
pub use oauth::authorization;
pub use observer::{Observation, Observer};
pub use pools::{Pool, Pools};
pub use retry::RetryPolicy;
pub use secrecy::{SecretSlice, SecretString};
pub use subnets::{Subnet, Subnets};
pub use tags::{Tag, TagChange, Tags};
pub use users::User;
pub use version::{Capabilities, Version, VersionError, VersionInfo};
pub use vlans::Vlan;
pub use vm_hosts::{
    Composed, NewVmHost, StoragePool, VmHost, VmHostAuth, VmHostParameters, VmHostResources, VmHostUpdate, VmHosts,
};
pub use weight::JsonWeight;
pub use zones::{Zone, Zones};
