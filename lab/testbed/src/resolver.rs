//! A DNS server for every process of a testbed that resolves names.
//!
//! A resolv.conf cannot contain a port, but every address of 127.0.0.0/8 is local: a DNS server listens on port 53 of
//! an address that nothing else uses. The file is bind-mounted over /etc/resolv.conf in a mount namespace of that one
//! process.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{Result, write_file},
    sandbox::Sandbox,
};

/// Writes the resolv.conf of a testbed.
pub(crate) fn write(sandbox: &Sandbox, name_server: IpAddr) -> Result<()> {
    // Short timeouts: the server is on this machine, and names appear while programs wait for them.
    write_file(&path(sandbox), format!("nameserver {name_server}\noptions timeout:1 attempts:2\n"))
}

/// The resolv.conf of a testbed, if it has one of its own.
pub(crate) fn of(sandbox: &Sandbox) -> Option<PathBuf> {
    Some(path(sandbox)).filter(|path| path.is_file())
}

fn path(sandbox: &Sandbox) -> PathBuf {
    sandbox.dir().join("resolv.conf")
}

/// A command that executes `program`, with arguments to be added, with the testbed's own resolv.conf.
pub(crate) fn command(sandbox: &Sandbox, program: &Path) -> Command {
    let Some(resolv_conf) = of(sandbox) else { return sandbox.command(program) };
    let mut command = sandbox.command("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#)
        .arg(resolv_conf)
        .arg(program);
    command
}
