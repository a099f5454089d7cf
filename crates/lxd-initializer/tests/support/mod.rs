//! Helpers for the tests on real LXD daemons.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod cluster;
pub(crate) mod daemon_set;
pub(crate) mod facts;
pub(crate) mod lxd;
pub(crate) mod managed;
pub(crate) mod sim;

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use clap::Parser;
use http::{Method, Request};
use lxd_client::{BoxError, Transport};
use lxd_initializer::{
    agent::{Agent, LxdHook, Pass},
    effect::EffectKind,
    health::Status,
    plan::State,
    settings::{Arguments, GivenCredentials, Settings},
};
use tower::{ServiceExt, util::BoxCloneSyncService};

use self::{cluster::MemoryCluster, lxd::RealLxd};

/// Settings for a node with this LXD: driver dir, its bridge, its address.
pub(crate) fn settings(lxd: &RealLxd, state: &Path, more: &[&str]) -> Settings {
    let own = [
        "lxd-initializer",
        "--node-name=n1",
        "--storage-backend=dir",
        &format!("--node-ip={}", lxd.ip),
        &format!("--lxd-socket={}", lxd.socket().display()),
        &format!("--network-bridge={}", lxd.bridge),
        &format!("--state-dir={}", state.display()),
    ]
    .map(str::to_owned);
    let mut all: Vec<String> = own.into();
    // A repeated flag is an error, so those given here replace the others.
    for flag in more {
        let name = flag.split('=').next().unwrap();
        all.retain(|own| own.split('=').next() != Some(name));
        all.push((*flag).to_owned());
    }
    Arguments::try_parse_from(all).unwrap().settle().unwrap().0
}

/// An agent in managed mode.
pub(crate) fn agent(settings: &Settings, cluster: &Arc<MemoryCluster>) -> Agent {
    Agent::new(settings.clone(), GivenCredentials::default(), cluster.clone(), Arc::new(Status::default()))
}

/// Counts writes to LXD, on the wire.
#[derive(Clone, Default)]
pub(crate) struct Writes(Arc<AtomicUsize>);

impl Writes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn hook(&self) -> LxdHook {
        let counter = self.0.clone();
        Arc::new(move |inner: Transport| {
            let counter = counter.clone();
            BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
                if request.method() != Method::GET {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
                inner.clone().oneshot(request)
            }))
        })
    }
}

/// Performs every write and loses its answer, like a broken connection.
pub(crate) fn losing_answers() -> LxdHook {
    Arc::new(|inner: Transport| {
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
            let (inner, write) = (inner.clone(), request.method() != Method::GET);
            async move {
                let answer = inner.oneshot(request).await?;
                if write { Err(BoxError::from("connection reset by peer")) } else { Ok(answer) }
            }
        }))
    })
}

/// Takes a port at the very moment when LXD is told to listen on it; the second value releases it.
pub(crate) fn occupying(at: SocketAddr) -> (LxdHook, Arc<Mutex<Option<TcpListener>>>) {
    let held = Arc::new(Mutex::new(None));
    let holder = held.clone();
    let hook: LxdHook = Arc::new(move |inner: Transport| {
        let holder = holder.clone();
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
            let listens = String::from_utf8_lossy(request.body()).contains(&at.to_string());
            if request.method() == Method::PATCH && listens {
                *holder.lock().unwrap() = Some(TcpListener::bind(at).unwrap());
            }
            inner.clone().oneshot(request)
        }))
    });
    (hook, held)
}

/// Runs passes until nothing is left to do; returns the last one and the effects.
pub(crate) async fn settle(agent: &mut Agent) -> (Pass, Vec<EffectKind>) {
    let mut done = Vec::new();
    for _ in 0..40 {
        let pass = agent.pass().await;
        match &pass.plan.effect {
            Some(effect) => done.push(effect.kind()),
            None => return (pass, done),
        }
    }
    panic!("it does not settle: {done:?}");
}

/// Settles and expects a node in the desired state.
pub(crate) async fn settle_ready(agent: &mut Agent) -> Vec<EffectKind> {
    let (pass, done) = settle(agent).await;
    assert_eq!(pass.plan.state, State::Ready, "{:#?}", pass.plan.conditions);
    done
}

/// Settles and expects a message with these words.
pub(crate) async fn settle_with(agent: &mut Agent, state: State, words: &str) -> Vec<EffectKind> {
    let (pass, done) = settle(agent).await;
    assert_eq!(pass.plan.state, state, "{}", pass.plan.message);
    assert!(pass.plan.message.contains(words), "{:?} lacks {words:?}", pass.plan.message);
    done
}
