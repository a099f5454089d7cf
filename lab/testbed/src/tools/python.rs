//! A Python environment with python-libmaas, a third-party MAAS client, and nothing else.

use std::{path::PathBuf, process::Command};

use super::{cache, packages::TEST_PACKAGES, progress::Progress};
use crate::{
    error::{Result, create_dir, write_file},
    process::run,
};

/// Every package with its version and hash.
const REQUIREMENTS: &str = include_str!("../../../../hack/python-libmaas/requirements.txt");
/// The version of python-libmaas; also in the requirements.
const VERSION: &str = "0.6.8";
/// Written last: its presence marks the environment as complete.
const COMPLETE: &str = "complete";

fn folder() -> Result<PathBuf> {
    Ok(cache::cache_root()?.join("tools").join(format!("python-libmaas-{VERSION}-r2")))
}

pub(super) fn is_there() -> Result<bool> {
    Ok(folder()?.join(COMPLETE).exists())
}

/// Creates the environment once, through pip, and returns its `python`. Blocks.
pub fn python_with_libmaas() -> Result<PathBuf> {
    super::ensure_packages(TEST_PACKAGES)?;
    let folder = folder()?;
    let python = folder.join("bin/python");
    create_dir(&folder)?;
    let _lock = cache::lock(&folder.join(".lock"), "python-libmaas")?;
    if is_there()? {
        return Ok(python);
    }
    let mut progress = Progress::start(format!("installing python-libmaas {VERSION}"));
    progress.tick();
    let mut environment = Command::new("/usr/bin/python3");
    environment.args(["-m", "venv"]).arg(&folder);
    run(environment)?;
    let requirements = folder.join("requirements.txt");
    write_file(&requirements, REQUIREMENTS)?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--require-hashes", "--requirement"]).arg(&requirements);
    run(pip)?;
    write_file(&folder.join(COMPLETE), "")?;
    progress.done();
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requirements_ask_for_the_version_in_the_folders_name() {
        assert!(REQUIREMENTS.contains(&format!("python-libmaas=={VERSION}")), "{REQUIREMENTS}");
    }
}
