//! `maas-test`: does MAAS do what capmaas needs? It reads MAAS; with `--test-vm-host` it composes a VM on this node,
//! waits for it and deletes it.

use std::net::IpAddr;

use clap::Parser;

use crate::{
    Checklist,
    options::MaasOptions,
    read_maas,
    site::Site,
    stop::Stop,
    virtual_machine,
    vm_host::{self, Registered},
    vmhost_test::AFTER_HELP,
};

/// Reads MAAS and, with --test-vm-host, registers this node, composes a VM, waits for Ready and removes both. Needs no root.
#[derive(Parser)]
#[command(name = "maas-test", version, about, after_help = AFTER_HELP)]
pub struct MaasTestArgs {
    /// Also compose a VM on this node, wait for Ready, delete it and check that it is gone
    #[arg(long, requires = "node_ip")]
    test_vm_host: bool,
    /// Address of this node that MAAS knows and on which LXD listens
    #[arg(long)]
    node_ip: Option<IpAddr>,
    #[command(flatten)]
    maas: MaasOptions,
}

pub async fn run(args: MaasTestArgs) -> Checklist {
    let mut list = Checklist::new("maas-test", args.maas.json);
    let (maas, stop) = match (args.maas.client(), Stop::listen()) {
        (Ok(maas), Ok(stop)) => (maas, stop),
        (Err(error), _) | (_, Err(error)) => {
            list.failed("Options", format!("{error:#}"), "see maas-test --help");
            return list;
        }
    };
    let Some(places) = read_maas::greet(&maas, &args.maas, &mut list).await else { return list };
    if !read_maas::vm_hosts(&maas, &mut list).await {
        return list;
    }
    let (true, Some(ip)) = (args.test_vm_host, args.node_ip) else {
        list.open("VM", "not tried: needs --test-vm-host");
        return list;
    };
    let Some(site) = Site::open(maas, ip, &args.maas, &mut list).await else { return list };
    let host = match vm_host::register(&site, args.maas.dry_run, &stop, &mut list).await {
        Registered::Yes(host) if args.maas.dry_run => {
            list.would(
                "VM",
                format!("would compose a VM on VM host {} ({}), wait for it and delete it", host.name, host.id),
            );
            return list;
        }
        Registered::WouldBe => {
            list.would("VM", "would compose a VM there, wait for it and delete it");
            return list;
        }
        Registered::No(_) if args.maas.dry_run => return list,
        Registered::Yes(host) => {
            if stop.is_wanted() {
                list.failed("VM", "not tried: the program was stopped", "run this again");
            } else {
                virtual_machine::try_out(&site, &host, places, &stop, &mut list).await;
            }
            host
        }
        Registered::No(Some(host)) => host,
        Registered::No(None) => return list,
    };
    vm_host::unregister(&site, &host, &mut list).await;
    list
}
