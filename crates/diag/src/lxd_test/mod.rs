//! `lxd-test`: is this node's LXD ready for MAAS, and if not, can it be made ready?
//!
//! The steps are those of `lxd-initializer`, run by the same code in its managed mode; instead of the manager's
//! certificate it uses that of the key pair that is left here for `vmhost-test` and `maas-test`.

mod cleanup;
mod dry_run;
mod journal;
mod node;
mod steps;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use clap::Parser;
use lxd_initializer::{
    agent::{Agent, Pass},
    effect::EffectKind,
    keys,
    observed::{Lookup, LxdFacts, Observed},
    plan::State,
    settings::{Arguments, GivenCredentials, Settings},
};

use self::{journal::Journal, node::ThisNode};
use crate::{
    Checklist,
    kept::{Kept, LxdHost},
};

const TOOL: &str = "lxd-test";
const KEY_PAIR: &str = "Key pair";
/// An LXD that has just started to listen, or creates a pool, needs some time.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(300);
/// Far more than there is to do and to wait for.
const PASSES: usize = 500;

/// Checks this node's LXD and prepares it for MAAS. Needs root.
#[derive(Parser, Debug)]
#[command(name = "lxd-test", version, about, after_help = AFTER_HELP)]
pub struct LxdTestArgs {
    /// Storage driver of the pool: zfs, btrfs, lvm or dir
    #[arg(long, default_value = "zfs")]
    storage_backend: String,
    /// Size of the pool in GB, if it has to be created; ignored by dir
    #[arg(long, default_value = "50")]
    storage_size: String,
    /// Bridge of this node to which VMs are attached; it must exist
    #[arg(long, default_value = "br0")]
    network_bridge: String,
    /// Storage pool to create, or to use if it exists and is healthy
    #[arg(long, default_value = "default")]
    storage_pool: String,
    /// Address of this node on which LXD should listen; by default the bridge's
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// Port on which LXD should listen
    #[arg(long, default_value_t = 8443)]
    lxd_port: u16,
    /// LXD project for MAAS
    #[arg(long, default_value = "maas")]
    lxd_project: String,
    /// LXD's unix socket; by default the usual paths are tried
    #[arg(long)]
    lxd_socket: Option<PathBuf>,
    /// Directory for the key pair and the notes; by default /var/lib/capmaas-diag/<uid of the user who ran sudo>
    #[arg(long)]
    key_dir: Option<PathBuf>,
    /// Remove what an earlier run has created, if nothing uses it
    #[arg(long)]
    cleanup: bool,
    /// Change nothing; show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print the checklist as JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "It leaves LXD ready and trusting a certificate that is bound to the project. The key pair \
belongs to the user who ran sudo and is what vmhost-test and maas-test register this node with. Nothing that somebody else \
made is changed; --cleanup removes what this program made, and only if it is unused.";

impl LxdTestArgs {
    fn settings(&self, kept: &Kept, node: &str) -> anyhow::Result<Settings> {
        let mut words = vec![
            "lxd-initializer".to_owned(),
            format!("--node-name={node}"),
            format!("--storage-backend={}", self.storage_backend),
            format!("--storage-size={}", self.storage_size),
            format!("--storage-pool={}", self.storage_pool),
            format!("--network-bridge={}", self.network_bridge),
            format!("--lxd-project={}", self.lxd_project),
            format!("--lxd-port={}", self.lxd_port),
            format!("--state-dir={}", kept.dir().display()),
        ];
        words.extend(self.node_ip.map(|ip| format!("--node-ip={ip}")));
        words.extend(self.lxd_socket.as_ref().map(|socket| format!("--lxd-socket={}", socket.display())));
        let (settings, _) =
            Arguments::try_parse_from(words)?.settle().map_err(|error| anyhow!(steps::in_flags(&error.to_string())))?;
        Ok(settings)
    }
}

pub async fn run(args: LxdTestArgs) -> Checklist {
    let mut list = Checklist::new(TOOL, args.json);
    let checked = async {
        let kept = Kept::new(args.key_dir.as_deref());
        let node = node::name()?;
        let settings = args.settings(&kept, &node)?;
        Ok::<_, anyhow::Error>((kept, settings))
    };
    let (kept, settings) = match checked.await {
        Ok(checked) => checked,
        Err(error) => {
            list.failed("Options", format!("{error:#}"), "see lxd-test --help");
            return list;
        }
    };
    if args.cleanup {
        cleanup::cleanup(&settings, &kept, args.dry_run, &mut list).await;
    } else if args.dry_run {
        dry_run::run(settings, &kept, &mut list).await;
    } else {
        prepare(settings, &kept, &mut list).await;
    }
    list
}

async fn prepare(settings: Settings, kept: &Kept, list: &mut Checklist) {
    let fresh = matches!(kept.identity(), Lookup::Absent);
    if let Err(error) = kept.make_key(&settings.node_name) {
        list.failed(KEY_PAIR, format!("{error:#}"), "run it as root: sudo ./lxd-test-linux …, or give --key-dir");
        return;
    }
    let journal = match kept.made() {
        Ok(made) => Journal::new(kept.clone(), made),
        Err(error) => {
            list.failed(
                "Notes",
                format!("{error:#}"),
                "read the file; remove it only if nothing listed in it was created here",
            );
            return;
        }
    };
    let cluster = Arc::new(ThisNode::new(kept.identity(), node::address(&settings).await));
    let mut agent = Agent::new(settings.clone(), GivenCredentials::default(), cluster, Arc::default())
        .with_lxd_hook(journal.hook());
    let (pass, done) = settle(&mut agent).await;
    steps::report(&pass.plan, &done, list);
    if pass.plan.state != State::Ready {
        return;
    }
    match note(&settings, &pass.observed).and_then(|host| kept.keep_host(&host)) {
        Ok(()) if fresh => {
            let file = kept.key_file();
            list.done(KEY_PAIR, format!("created {} for user {}", file.display(), crate::kept::user()));
        }
        Ok(()) => list.good(KEY_PAIR, format!("{} exists", kept.key_file().display())),
        Err(error) => list.failed(KEY_PAIR, format!("{error:#}"), "check whether the disk is full or read-only"),
    }
    leave(journal, kept, list);
}

fn leave(journal: Journal, kept: &Kept, list: &mut Checklist) {
    let made = journal.made();
    let words = [
        made.storage_pool.map(|name| format!("storage pool {name:?}")),
        made.project.map(|name| format!("project {name:?}")),
        made.listener.map(|address| format!("LXD listening on {address}")),
        made.certificate.map(|print| format!("trust in certificate {print}")),
        Some(format!("the key pair and notes in {}", kept.dir().display())),
    ];
    words.into_iter().flatten().for_each(|word| list.leaves(word));
    list.leaves("lxd-test --cleanup removes all of that");
}

/// Runs passes until nothing is left to do; returns the last one and the effects.
async fn settle(agent: &mut Agent) -> (Pass, Vec<EffectKind>) {
    let mut done = Vec::new();
    let mut until = tokio::time::Instant::now() + PATIENCE;
    for _ in 0..PASSES {
        let pass = agent.pass().await;
        let acted = match (&pass.plan.effect, &pass.result) {
            (Some(effect), Some(Ok(()))) => {
                done.push(effect.kind());
                true
            }
            // The next pass reports what failed.
            (Some(_), _) => true,
            (None, _) => false,
        };
        let ended = matches!(pass.plan.state, State::Ready | State::Blocked | State::Left);
        if acted {
            // Creating a pool alone may take minutes.
            until = tokio::time::Instant::now() + PATIENCE;
        } else if ended || tokio::time::Instant::now() >= until {
            return (pass, done);
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
    (agent.pass().await, done)
}

/// What the other programs need to know, as finally observed.
fn note(settings: &Settings, observed: &Observed) -> anyhow::Result<LxdHost> {
    let (LxdFacts::Here(server), Some(node)) = (&observed.lxd, observed.node.found()) else {
        return Err(anyhow!("LXD has stopped in the meantime"));
    };
    Ok(LxdHost {
        node: settings.node_name.clone(),
        address: lxd_initializer::decide::address(settings, node, server).context("LXD's address is not known")?,
        fingerprint: server.fingerprint.context("LXD does not report the fingerprint of its certificate")?,
        project: settings.project.clone(),
    })
}

/// The certificate of a key pair in the library's type.
fn certificate(identity: &Lookup<lxd_client::Identity>) -> Lookup<lxd_initializer::observed::Certificate> {
    match identity {
        Lookup::Found(identity) => keys::fact(identity),
        Lookup::Absent => Lookup::Absent,
        Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
    }
}
