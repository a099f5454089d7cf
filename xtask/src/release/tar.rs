//! A tar archive (ustar) whose bytes depend only on names, modes and contents: no times, no owners.

use tar::{Builder, EntryType, Header};

/// Builds an archive. Entries appear in the order of the calls.
pub(crate) struct Archive(Builder<Vec<u8>>);

impl Default for Archive {
    fn default() -> Self {
        Self(Builder::new(Vec::new()))
    }
}

impl Archive {
    /// A folder that everyone may enter.
    pub(crate) fn folder(&mut self, path: &str) -> anyhow::Result<()> {
        self.entry(&format!("{path}/"), EntryType::Directory, 0o755, b"")
    }

    /// A file with its permissions.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        self.entry(path, EntryType::Regular, mode, content)
    }

    fn entry(&mut self, path: &str, kind: EntryType, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        let mut header = Header::new_ustar();
        header.set_path(path)?;
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(u64::try_from(content.len())?);
        header.set_cksum();
        Ok(self.0.append(&header, content)?)
    }

    /// The archive with its end marker.
    pub(crate) fn finish(self) -> anyhow::Result<Vec<u8>> {
        Ok(self.0.into_inner()?)
    }

    /// The same, compressed. The gzip header contains no time either.
    pub(crate) fn finish_gzip(self) -> anyhow::Result<Vec<u8>> {
        use std::io::Write as _;

        let mut gzip = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
        gzip.write_all(&self.finish()?)?;
        Ok(gzip.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_tar_reads_it_packed_or_not_and_the_same_input_makes_the_same_bytes() {
        let archive = || {
            let mut archive = Archive::default();
            archive.folder("etc").unwrap();
            archive.file("etc/text", 0o644, b"hello").unwrap();
            archive.file("program", 0o755, &[7; 1025]).unwrap();
            archive
        };
        let folder = tempfile::tempdir().unwrap();
        for bytes in [archive().finish().unwrap(), archive().finish_gzip().unwrap()] {
            let path = folder.path().join("a.tar");
            std::fs::write(&path, &bytes).unwrap();
            let listed = std::process::Command::new("tar").arg("-tvf").arg(&path).output().unwrap();
            let listed = String::from_utf8(listed.stdout).unwrap();
            let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
            let told: Vec<_> =
                lines.iter().map(|words| (words[0], words[1], words[2], words[3], *words.last().unwrap())).collect();
            let (root, past) = ("0/0", "1970-01-01");
            assert_eq!(
                told,
                [
                    ("drwxr-xr-x", root, "0", past, "etc/"),
                    ("-rw-r--r--", root, "5", past, "etc/text"),
                    ("-rwxr-xr-x", root, "1025", past, "program")
                ]
            );
        }
        assert_eq!(archive().finish_gzip().unwrap(), archive().finish_gzip().unwrap());
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        assert!(Archive::default().file(&"x".repeat(101), 0o644, b"").is_err());
    }
}
