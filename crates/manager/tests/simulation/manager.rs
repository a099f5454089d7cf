//! One process lifetime of the manager.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capmaas_api::capi::Machine;
use capmaas_core::cluster::observed::Contract;
use capmaas_core::plan::Requeue;
use capmaas_manager::clock::Clock;
use capmaas_manager::cluster;
use capmaas_manager::evacuation;
use capmaas_manager::identity::{Connect, Credentials, Identities, MemoryCredentialCopies, Settings};
use capmaas_manager::kubernetes::{Error, ErrorKind, Guard, Key, MemoryKubernetes, Owners, Result};
use capmaas_manager::lease::Fence;
use capmaas_manager::lxd_hosts::LxdHosts;
use capmaas_manager::machine;
use capmaas_manager::metrics::Metrics;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use maas_client::transport::in_process;
use maas_client::{Client, Environment, RetryPolicy};
use maas_sim::Simulator;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::crash::{Crash, Mortal};
use crate::dns_writes::DnsWrites;

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Cluster(Key),
    Machine(Key),
    /// All LXD hosts, under a key that no object has.
    Hosts(Key),
}

impl Subject {
    pub(crate) fn hosts() -> Self {
        Self::Hosts(Key::new("capmaas-system", "hosts"))
    }

    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Cluster(key) | Self::Machine(key) | Self::Hosts(key) => key,
        }
    }
}

/// When to requeue.
pub(crate) enum Next {
    OnChange,
    After(i64),
}

impl From<Requeue> for Next {
    fn from(requeue: Requeue) -> Self {
        match requeue {
            Requeue::OnChange => Self::OnChange,
            Requeue::After(wait) => Self::After(i64::try_from(wait.as_millis()).unwrap()),
        }
    }
}

/// The system clock, by which the simulated MAAS checks signatures, and fresh nonces.
struct Driven {
    counter: AtomicU64,
}

impl Environment for Driven {
    fn unix_seconds(&self) -> u64 {
        maas_client::SystemEnvironment.unix_seconds()
    }

    fn random(&self) -> u128 {
        u128::from(self.counter.fetch_add(1, Ordering::SeqCst))
    }
}

/// What survives the manager.
#[derive(Clone)]
pub(crate) struct ClusterFacts {
    pub(crate) clock: Clock,
    pub(crate) port: MemoryKubernetes,
    /// The transport to each MAAS, by its endpoint.
    pub(crate) ways: BTreeMap<String, Simulator>,
    pub(crate) crash: Crash,
    pub(crate) dns_writes: DnsWrites,
    pub(crate) keeper: Arc<MemoryCredentialCopies>,
    /// The manager may not delete Machines.
    pub(crate) denied: Arc<AtomicBool>,
}

/// Machines and their owners, for a manager that may lack the permission to delete.
#[derive(Debug)]
struct Granted {
    mortal: Arc<Mortal>,
    denied: Arc<AtomicBool>,
}

#[async_trait]
impl Owners for Granted {
    async fn machines(&self, cluster: &Key) -> Result<Vec<Machine>> {
        self.mortal.machines(cluster).await
    }

    async fn owner(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Value>> {
        self.mortal.owner(namespace, owner).await
    }

    async fn delete_machine(&self, key: &Key, uid: &str, guard: &Guard) -> Result<()> {
        if self.denied.load(Ordering::SeqCst) {
            let why = r#"User "manager" cannot delete resource "machines" in API group "cluster.x-k8s.io""#;
            return Err(Error::new(ErrorKind::Denied, format!("delete the Machine {key}"), why));
        }
        self.mortal.delete_machine(key, uid, guard).await
    }
}

/// One process lifetime of the manager.
#[derive(Clone)]
pub(crate) struct Manager {
    machines: machine::Context,
    clusters: cluster::Context,
    hosts: evacuation::Context,
    /// What the last pass over each machine left for an immediately following one. Here all kinds of things happen in
    /// between.
    known: Arc<Mutex<BTreeMap<Key, machine::Carried>>>,
}

impl Manager {
    pub(crate) fn new(around: &ClusterFacts, life: u64) -> Self {
        let (ways, crashing, writes) = (around.ways.clone(), around.crash.clone(), around.dns_writes.clone());
        let lives = AtomicU64::new(life << 32);
        let connect: Connect = Arc::new(move |credentials: &Credentials| {
            let counter = AtomicU64::new(lives.fetch_add(1 << 24, Ordering::SeqCst));
            let router = ways[&credentials.endpoint].router();
            Client::builder(&credentials.endpoint, credentials.key.expose_secret())
                .transport(crashing.on_the_way(writes.on_the_way(in_process(router, 1 << 22))))
                .environment(Driven { counter })
                .retry(RetryPolicy::never())
                .build()
        });
        let kubernetes = Arc::new(Mortal { port: around.port.clone(), crash: around.crash.clone() });
        let settings = Settings { namespace: "capmaas-system".into(), ..Settings::default() };
        let clock = around.clock.clone();
        let identities = Identities::new(kubernetes.clone(), around.keeper.clone(), clock.clone(), settings, connect);
        let (fence, metrics, lxd_hosts) = (Fence::open(), Metrics::new(), LxdHosts::default());
        let reports = lxd_hosts.reports.clone();
        Self {
            known: Arc::default(),
            hosts: evacuation::Context {
                kubernetes: kubernetes.clone(),
                owners: Arc::new(Granted { mortal: kubernetes.clone(), denied: around.denied.clone() }),
                identities: identities.clone(),
                clock: clock.clone(),
                fence: fence.clone(),
                metrics: metrics.clone(),
                lxd_hosts: lxd_hosts.clone(),
                memory: evacuation::Memory::default(),
            },
            machines: machine::Context {
                kubernetes: kubernetes.clone(),
                identities: identities.clone(),
                clock: clock.clone(),
                fence: fence.clone(),
                metrics: metrics.clone(),
                lxd_hosts,
                backoff: capmaas_manager::backoff::Backoff::default(),
            },
            clusters: cluster::Context {
                kubernetes,
                identities,
                clock,
                fence,
                metrics,
                contract: Contract::List,
                memory: cluster::Memory::default(),
                agent_image: None,
                reports,
            },
        }
    }

    /// Something in its own namespace changed.
    pub(crate) fn hears_of_credentials(&self) {
        self.machines.identities.changed();
    }

    pub(crate) async fn pass(&self, subject: &Subject) -> Result<Next> {
        Ok(match subject {
            Subject::Machine(key) => {
                let mut known = self.known.lock().unwrap().remove(key).unwrap_or_default();
                let requeue = machine::reconcile_knowing(&self.machines, key, &mut known).await?;
                if matches!(requeue, Requeue::After(wait) if wait.is_zero()) {
                    self.known.lock().unwrap().insert(key.clone(), known);
                }
                requeue.into()
            }
            Subject::Cluster(key) => cluster::reconcile(&self.clusters, key).await?.into(),
            Subject::Hosts(_) => evacuation::pass(&self.hosts).await?.into(),
        })
    }
}
