//! `vmhost-test`: can this node be a VM host of MAAS? It is registered, MAAS is verified to reach it, and the
//! registration is reverted.

use std::net::IpAddr;

use clap::Parser;

use crate::{
    Checklist,
    options::MaasOptions,
    read_maas,
    site::Site,
    stop::Stop,
    vm_host::{self, Registered},
};

/// Registers this node in MAAS as a VM host, checks that MAAS reaches it, and unregisters it. Needs no root.
#[derive(Parser)]
#[command(name = "vmhost-test", version, about, after_help = AFTER_HELP)]
pub struct VmhostTestArgs {
    /// Address of this node that MAAS knows and on which LXD listens
    #[arg(long)]
    node_ip: IpAddr,
    #[command(flatten)]
    maas: MaasOptions,
}

pub(crate) const AFTER_HELP: &str = "Run lxd-test first: its key pair is what MAAS gets. A node is registered only while \
its LXD project is empty, because MAAS restarts and commissions VMs that it does not know. A registration of this machine \
that is there already is accepted and left as it is.";

pub async fn run(args: VmhostTestArgs) -> Checklist {
    let mut list = Checklist::new("vmhost-test", args.maas.json);
    let (maas, stop) = match (args.maas.client(), Stop::listen()) {
        (Ok(maas), Ok(stop)) => (maas, stop),
        (Err(error), _) | (_, Err(error)) => {
            list.failed("Options", format!("{error:#}"), "see vmhost-test --help");
            return list;
        }
    };
    if read_maas::greet(&maas, &args.maas, &mut list).await.is_none() {
        return list;
    }
    let Some(site) = Site::open(maas, args.node_ip, &args.maas, &mut list).await else { return list };
    match vm_host::register(&site, args.maas.dry_run, &stop, &mut list).await {
        Registered::Yes(host) | Registered::No(Some(host)) if args.maas.dry_run => {
            if host.ours {
                list.would("Unregistration", format!("would unregister VM host {} ({})", host.name, host.id));
            }
        }
        Registered::Yes(host) | Registered::No(Some(host)) => vm_host::unregister(&site, &host, &mut list).await,
        Registered::No(None) | Registered::WouldBe => {}
    }
    list
}
