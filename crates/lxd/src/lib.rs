//! A client of the LXD REST API: over the unix socket of a local daemon, or over TLS with a client certificate and a
//! pinned server certificate. It never runs a command.
//!
//! ```no_run
//! # async fn example() -> Result<(), lxd_client::Error> {
//! use lxd_client::Client;
//!
//! let lxd = Client::unix("/var/snap/lxd/common/lxd/unix.socket")?;
//! let server = lxd.server().await?;
//! println!("LXD {} makes VMs: {}", server.environment.server_version, server.supports_virtual_machines());
//! match lxd.storage_pool("default").await? {
//!     Some(pool) if pool.status == "Created" => println!("pool on {}", pool.driver),
//!     Some(pool) => println!("the pool exists but is {}", pool.status),
//!     None => println!("LXD says that there is no such pool"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What to rely on
//!
//! * **Unknown is not absent.** A look-up is `Ok(None)` only if LXD itself answered 404 for that object. Everything
//!   else that is not a normal answer is an [`Error`].
//! * **A mutation is complete when its actual outcome is known.** Which calls LXD answers at once and which it turns
//!   into background operations differs between versions, so every mutation decides by the `type` of the answer and
//!   waits for an operation within the write deadline. If the outcome cannot be determined, [`Error::advice`] is
//!   [`Advice::ReadAgain`].
//! * **"Already exists" is not an error kind.** LXD has no stable code for it (400, 409, 500 or a failed operation, by
//!   object and version). After any failed create, read the object and compare.
//! * Nothing is retried implicitly, every request has a deadline, and the size of answers is limited.
//! * No private key, token or password ever appears in a `Debug` or `Display` text.

#![warn(missing_docs)]

mod certificate;
mod client;
mod envelope;
mod error;
mod fingerprint;
mod instance;
mod network;
mod operation;
mod profile;
mod project;
mod server;
mod storage;
mod tls;
mod tolerant;
mod transport;

pub use certificate::{NewCertificate, TrustedCertificate};
pub use client::{Client, Deadlines, Mutated};
pub use error::{Advice, Error, ErrorKind};
pub use fingerprint::{Fingerprint, certificate_der};
pub use instance::Instance;
pub use network::{BridgeState, Network, NetworkAddress, NetworkState};
pub use operation::{Operation, OperationStatus};
pub use profile::Profile;
pub use project::{NewProject, Project};
pub use server::{Environment, Server, StorageDriver};
pub use storage::{NewStoragePool, StoragePool};
pub use tls::Identity;
pub use transport::{BoxError, Transport, TransportError, over_reqwest};
