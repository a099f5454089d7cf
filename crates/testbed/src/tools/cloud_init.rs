//! cloud-init's own check of user data, without cloud-init on this machine: the package would run at its next boot.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::cache;
use crate::{
    error::{Doing, Error, Result, create_dir, write_file},
    process::run,
};

/// cloud-init, unpacked.
#[derive(Clone, Debug)]
pub struct CloudInit {
    dir: PathBuf,
}

impl CloudInit {
    /// Fetches and unpacks Debian's package, once. What it imports is among [`super::PACKAGES`]. Blocks.
    pub fn ensure() -> Result<Self> {
        super::ensure_packages()?;
        let root = cache::cache_root()?.join("tools");
        create_dir(&root)?;
        let dir = root.join("cloud-init-debian");
        let _lock = cache::lock(&root.join(".cloud-init.lock"), "cloud-init")?;
        if !dir.exists() {
            let partial = root.join(".cloud-init.partial");
            let _ = fs::remove_dir_all(&partial);
            create_dir(&partial)?;
            let mut download = Command::new("apt-get");
            // As the user who asked: apt's own user may not write here.
            download.args(["-o", "APT::Sandbox::User=root", "download", "cloud-init"]).current_dir(&partial);
            run(download)?;
            let package = fs::read_dir(&partial)
                .doing(|| format!("read {}", partial.display()))?
                .flatten()
                .map(|entry| entry.path())
                .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
                .ok_or_else(|| Error::Missing("apt-get download left no package of cloud-init".into()))?;
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(&package).arg(&partial);
            run(unpack)?;
            fs::rename(&partial, &dir).doing(|| format!("put {} in its place", dir.display()))?;
        }
        Ok(Self { dir })
    }

    /// Asks cloud-init whether it accepts this cloud-config. It must be rendered: a `## template: jinja` is not.
    pub fn check(&self, folder: &Path, user_data: &str) -> Result<()> {
        create_dir(folder)?;
        let file = folder.join("user-data.yaml");
        write_file(&file, user_data)?;
        // Debian's Python, whose packages cloud-init needs; another one may come first in PATH.
        let mut command = Command::new("/usr/bin/python3");
        command
            .args([
                "-c",
                "import sys; from cloudinit.cmd.main import main; sys.exit(main())",
                "schema",
                "--config-file",
            ])
            .arg(&file)
            .env("PYTHONPATH", self.dir.join("usr/lib/python3/dist-packages"));
        let said = run(command)?;
        // It has ended with 0 after printing an error.
        if said.contains("Valid") { Ok(()) } else { Err(Error::invalid("a cloud-config", said)) }
    }
}
