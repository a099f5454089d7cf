//! cloud-init's own check of user data, without installing cloud-init: the package would run at this machine's next
//! boot.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::unpacked;
use crate::{
    error::{Error, Result, create_dir, write_file},
    process::run,
};

/// cloud-init, unpacked.
#[derive(Clone, Debug)]
pub struct CloudInit {
    dir: PathBuf,
}

impl CloudInit {
    /// Debian's package, unpacked. Blocks.
    pub fn ensure() -> Result<Self> {
        Ok(Self { dir: unpacked("cloud-init")? })
    }

    /// Checks with cloud-init that this cloud-config is valid. It must be rendered: a `## template: jinja` is not.
    pub fn check(&self, folder: &Path, user_data: &str) -> Result<()> {
        create_dir(folder)?;
        let file = folder.join("user-data.yaml");
        write_file(&file, user_data)?;
        // Debian's Python, which has the packages that cloud-init needs; another one may come first in PATH.
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
        // It can exit with 0 after printing an error.
        if said.contains("Valid") { Ok(()) } else { Err(Error::invalid("a cloud-config", said)) }
    }
}
