//! Container images of programs that were built here, in one archive for containerd to import.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    error::{Doing, Error, Result, create_dir, write_file},
    process::run,
};

/// An image of one layer, assembled in a folder.
pub(super) struct Image {
    name: String,
    entrypoint: String,
    layer: PathBuf,
}

impl Image {
    /// An image with only what every program expects.
    pub(super) fn begin(folder: &Path, name: &str, entrypoint: &str) -> Result<Self> {
        let layer = folder.join(name.replace(['/', ':'], "_"));
        for directory in ["etc", "tmp"] {
            create_dir(&layer.join(directory))?;
        }
        set_mode(&layer.join("tmp"), 0o1777)?;
        write_file(&layer.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
        Ok(Self { name: name.to_owned(), entrypoint: entrypoint.to_owned(), layer })
    }

    /// The folder for its files.
    pub(super) fn folder(&self) -> &Path {
        &self.layer
    }

    pub(super) fn program(self, path: &str, source: &Path) -> Result<Self> {
        let target = self.place(path)?;
        fs::copy(source, &target).doing(|| format!("copy {} into {}", source.display(), self.name))?;
        set_mode(&target, 0o755)?;
        Ok(self)
    }

    pub(super) fn script(self, path: &str, content: &str) -> Result<Self> {
        let target = self.place(path)?;
        write_file(&target, content)?;
        set_mode(&target, 0o755)?;
        Ok(self)
    }

    /// Adds symbolic links to one program, all in one folder.
    pub(super) fn links(self, folder: &str, names: &[&str], target: &str) -> Result<Self> {
        for name in names {
            let link = self.place(&format!("{folder}/{name}"))?;
            symlink(target, &link).doing(|| format!("link {}", link.display()))?;
        }
        Ok(self)
    }

    fn place(&self, path: &str) -> Result<PathBuf> {
        let target = self.layer.join(path.trim_start_matches('/'));
        if let Some(parent) = target.parent() {
            create_dir(parent)?;
        }
        Ok(target)
    }

    /// Packs it into a folder and returns its manifest entry.
    fn pack(&self, folder: &Path) -> Result<Value> {
        let packed = folder.join("layer.tar");
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "--owner=0", "--group=0", "-C"]).arg(&self.layer).arg("-cf").arg(&packed).arg(".");
        run(tar)?;
        fs::remove_dir_all(&self.layer).doing(|| format!("remove {}", self.layer.display()))?;
        let digest = sha256(&packed)?;
        let layer = format!("{digest}.tar");
        fs::rename(&packed, folder.join(&layer)).doing(|| format!("put {layer} in its place"))?;
        let config = json!({
            "architecture": architecture()?,
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": [self.entrypoint],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        })
        .to_string();
        let name = format!("{}.json", hex(&Sha256::digest(&config)));
        write_file(&folder.join(&name), &config)?;
        Ok(json!({"Config": name, "RepoTags": [self.name], "Layers": [layer]}))
    }
}

/// The name of this machine's architecture in container images.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(Error::Missing(format!("nodes are made for amd64 and arm64, and this machine is {other}"))),
    }
}

/// Packs images into one archive, as `docker save` does.
pub(super) fn archive(images: &[Image], folder: &Path, target: &Path) -> Result<()> {
    create_dir(folder)?;
    let entries = images.iter().map(|image| image.pack(folder)).collect::<Result<Vec<Value>>>()?;
    write_file(&folder.join("manifest.json"), Value::from(entries).to_string())?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).arg("-cf").arg(target).arg(".");
    run(tar)?;
    fs::remove_dir_all(folder).doing(|| format!("remove {}", folder.display()))
}

fn sha256(path: &Path) -> Result<String> {
    let doing = || format!("read {}", path.display());
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path).doing(doing)?, &mut HashWriter(&mut hash)).doing(doing)?;
    Ok(hex(&hash.finalize()))
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).doing(|| format!("set the mode of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_names_its_images_and_their_layers_by_digest() {
        let dir = tempfile::tempdir().unwrap();
        let script = Image::begin(dir.path(), "example/one:v1", "/bin/one").unwrap();
        let script = script.script("/bin/one", "#!/bin/sh\n").unwrap().links("/bin", &["two"], "one").unwrap();
        let target = dir.path().join("images.tar");
        archive(&[script], &dir.path().join("packed"), &target).unwrap();
        let mut show = Command::new("tar");
        show.arg("-xOf").arg(&target).arg("./manifest.json");
        let manifest: Value = serde_json::from_str(&run(show).unwrap()).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "example/one:v1");
        let layer = manifest[0]["Layers"][0].as_str().unwrap().to_owned();
        let unpacked = dir.path().join("unpacked");
        create_dir(&unpacked).unwrap();
        let mut unpack = Command::new("tar");
        unpack.arg("-C").arg(&unpacked).arg("-xf").arg(&target);
        run(unpack).unwrap();
        assert_eq!(format!("{}.tar", sha256(&unpacked.join(&layer)).unwrap()), layer);
        let mut list = Command::new("tar");
        list.arg("-tf").arg(unpacked.join(&layer));
        let files = run(list).unwrap();
        assert!(files.contains("./bin/two") && files.contains("./etc/passwd"), "{files}");
    }
}
