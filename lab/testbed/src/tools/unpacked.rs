//! Debian packages whose programs are needed without being installed: installed, they would start a service now or at
//! the next boot.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::cache;
use crate::{
    error::{Doing, Error, Result, create_dir},
    process::run,
};

/// Downloads and unpacks a Debian package once, and returns the folder. Its dependencies are in
/// [`super::TEST_PACKAGES`]. Blocks.
pub fn unpacked(package: &str) -> Result<PathBuf> {
    super::ensure_packages(super::TEST_PACKAGES)?;
    let root = cache::cache_root()?.join("tools");
    create_dir(&root)?;
    let dir = folder(package)?;
    let _lock = cache::lock(&root.join(format!(".{package}.lock")), package)?;
    if !dir.exists() {
        let partial = root.join(format!(".{package}.partial"));
        let _ = fs::remove_dir_all(&partial);
        create_dir(&partial)?;
        let mut download = Command::new("apt-get");
        // As the calling user: apt's own user cannot write here.
        download.args(["-o", "APT::Sandbox::User=root", "download", package]).current_dir(&partial);
        run(download)?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("--extract").arg(downloaded(&partial, package)?).arg(&partial);
        run(unpack)?;
        fs::rename(&partial, &dir).doing(|| format!("put {} in its place", dir.display()))?;
    }
    Ok(dir)
}

/// The folder of an unpacked package.
pub(super) fn folder(package: &str) -> Result<PathBuf> {
    Ok(cache::cache_root()?.join("tools").join(format!("{package}-debian")))
}

fn downloaded(folder: &Path, package: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).doing(|| format!("read {}", folder.display()))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let found = entries.flatten().map(|entry| entry.path()).find(is_package);
    found.ok_or_else(|| Error::Missing(format!("apt-get download left no package of {package}")))
}
