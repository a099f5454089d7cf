//! `--cleanup`: removes what this program journaled as created, in reverse order, and only what nothing uses.

use anyhow::{Context, anyhow, bail};
use http::Method;
use lxd_client::Client;
use lxd_initializer::{names, settings::Settings};
use serde_json::json;

use crate::{
    Checklist,
    kept::{Kept, Made},
};

const LISTENER: &str = "Listener";
const NOTES: &str = "Notes";
const PROJECT: &str = "Project";
const STORAGE_POOL: &str = "Storage pool";
const TRUST: &str = "Trust";

pub(super) async fn cleanup(settings: &Settings, kept: &Kept, dry_run: bool, list: &mut Checklist) {
    let made = match kept.made() {
        Ok(made) => made,
        Err(error) => {
            list.failed(
                NOTES,
                format!("{error:#}"),
                "run it as root, for the user who ran lxd-test (or with --key-dir)",
            );
            return;
        }
    };
    if made == Made::default() {
        list.good(NOTES, format!("{} records nothing that lxd-test created in LXD", kept.dir().display()));
    } else {
        let lxd = match connect(settings).await {
            Ok(lxd) => lxd,
            Err(error) => {
                list.failed("LXD", format!("{error:#}"), "start LXD, run this as root, or give --lxd-socket");
                return;
            }
        };
        // VMs in the project need everything else as well.
        if let Err(error) = nobody_inside(&lxd, &made).await {
            list.failed(PROJECT, format!("{error:#}"), "move or delete what is in there, unregister the host in MAAS");
            return;
        }
        undo(&lxd, kept, made, dry_run, list).await;
    }
    if !list.is_good() {
        list.open("Key pair", "kept, because not everything could be removed");
    } else if dry_run {
        list.would("Key pair", format!("would remove the key pair and notes in {}", kept.dir().display()));
    } else {
        match kept.remove() {
            Ok(()) => list.done("Key pair", format!("removed the key pair and notes in {}", kept.dir().display())),
            Err(error) => list.failed("Key pair", format!("{error:#}"), "run it as root"),
        }
    }
}

async fn connect(settings: &Settings) -> anyhow::Result<Client> {
    let mut last = anyhow!("there is no LXD socket to try");
    for socket in &settings.sockets {
        let lxd = Client::unix(socket)?;
        match lxd.server().await {
            Ok(server) if server.is_trusted() => return Ok(lxd),
            Ok(_) => last = anyhow!("LXD does not trust this user on {}", socket.display()),
            Err(error) => last = anyhow!("{}: {error}", socket.display()),
        }
    }
    Err(last)
}

async fn nobody_inside(lxd: &Client, made: &Made) -> anyhow::Result<()> {
    let Some(project) = &made.project else { return Ok(()) };
    let instances = lxd.instances(project).await?;
    if instances.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = instances.into_iter().map(|instance| instance.name).collect();
    bail!("project {project:?} holds instances ({}), so nothing is removed", names.join(", "))
}

async fn undo(lxd: &Client, kept: &Kept, mut made: Made, dry_run: bool, list: &mut Checklist) {
    if let Some(print) = made.certificate {
        let what = format!("trust in certificate {print}");
        let undone = async {
            if lxd.certificate(print).await?.is_none() {
                return Ok(false);
            }
            delete(lxd, &format!("/1.0/certificates/{print}"), dry_run).await
        };
        if !report(list, TRUST, &what, dry_run, undone.await) {
            return;
        }
        made.certificate = None;
        remember(kept, &made, dry_run, list);
    }
    if let Some(address) = made.listener.clone() {
        let undone = stop_listening(lxd, &address, dry_run).await;
        if report(list, LISTENER, &format!("LXD listening on {address}"), dry_run, undone) {
            made.listener = None;
            remember(kept, &made, dry_run, list);
        }
    }
    if let Some(name) = made.project.clone() {
        let undone = async {
            if lxd.project(&name).await?.is_none() {
                return Ok(false);
            }
            delete(lxd, &format!("/1.0/projects/{}", plain(&name)?), dry_run).await
        };
        if report(list, PROJECT, &format!("project {name:?}"), dry_run, undone.await) {
            made.project = None;
            remember(kept, &made, dry_run, list);
        }
    }
    if let Some(name) = made.storage_pool.clone() {
        let undone = async {
            let Some(pool) = lxd.storage_pool(&name).await? else { return Ok(false) };
            if !pool.used_by.is_empty() {
                bail!("storage pool {name:?} is used by {}", pool.used_by.join(", "));
            }
            delete(lxd, &format!("/1.0/storage-pools/{}", plain(&name)?), dry_run).await
        };
        if report(list, STORAGE_POOL, &format!("storage pool {name:?}"), dry_run, undone.await) {
            made.storage_pool = None;
            remember(kept, &made, dry_run, list);
        }
    }
}

/// Both values at once, as they were set, and only while they are still ours.
async fn stop_listening(lxd: &Client, address: &str, dry_run: bool) -> anyhow::Result<bool> {
    let server = lxd.server().await?;
    let ours = [server.setting("core.https_address"), server.setting(names::LISTENER_NOTE)];
    if ours != [Some(address), Some(address)] {
        return Ok(false);
    }
    if !dry_run {
        let body = json!({ "config": { "core.https_address": "", names::LISTENER_NOTE: "" } });
        lxd.mutate(Method::PATCH, "/1.0", Some(&body)).await.context("the listener cannot be removed")?;
    }
    Ok(true)
}

async fn delete(lxd: &Client, path: &str, dry_run: bool) -> anyhow::Result<bool> {
    if !dry_run {
        lxd.mutate(Method::DELETE, path, None::<&()>).await?;
    }
    Ok(true)
}

/// LXD's own rule for these names; anything else would change the meaning of the path.
fn plain(name: &str) -> anyhow::Result<&str> {
    let fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty() && name.chars().all(fit) && !name.starts_with('.') {
        Ok(name)
    } else {
        bail!("{name:?} is not a valid name in LXD")
    }
}

/// Reports the result; returns whether it is done.
fn report(
    list: &mut Checklist,
    subject: &'static str,
    what: &str,
    dry_run: bool,
    undone: anyhow::Result<bool>,
) -> bool {
    match undone {
        Ok(true) if dry_run => list.would(subject, format!("would remove {what}")),
        Ok(true) => list.done(subject, format!("removed {what}")),
        Ok(false) => list.good(subject, format!("{what} no longer exists, or belongs to somebody else now")),
        Err(error) => {
            list.failed(
                subject,
                format!("{what} is kept: {error:#}"),
                "check what uses it (lxc project show, lxc storage show)",
            );
            return false;
        }
    }
    true
}

fn remember(kept: &Kept, made: &Made, dry_run: bool, list: &mut Checklist) {
    if !dry_run && let Err(error) = kept.keep_made(made) {
        list.failed(NOTES, format!("{error:#}"), "check whether the disk is full or read-only");
    }
}
