//! A tar archive (ustar) whose bytes depend on nothing but names, modes and contents: no times, no owners.

/// The largest file that a ustar header can describe, 8 GiB.
const LARGEST: u64 = 0o77_777_777_777;

/// Builds an archive. Entries appear in the order of the calls.
#[derive(Default)]
pub(crate) struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    /// A folder that everybody may enter.
    pub(crate) fn folder(&mut self, path: &str) -> anyhow::Result<()> {
        self.header(&format!("{path}/"), 0o755, 0, b'5')
    }

    /// A file with its permissions.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        self.header(path, mode, u64::try_from(content.len())?, b'0')?;
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        Ok(())
    }

    /// The archive with its end marker.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }

    fn header(&mut self, path: &str, mode: u32, size: u64, kind: u8) -> anyhow::Result<()> {
        anyhow::ensure!(path.len() <= 100, "the path {path} has more than the 100 bytes of a tar header");
        anyhow::ensure!(size <= LARGEST, "{path} is larger than a tar header can say");
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, path.as_bytes());
        put(100, format!("{mode:07o}\0").as_bytes());
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{size:011o}\0").as_bytes());
        put(136, b"00000000000\0");
        // The checksum counts its own eight bytes as blanks.
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_tar_reads_it() {
        let mut tar = Tar::default();
        tar.folder("etc").unwrap();
        tar.file("etc/text", 0o644, b"hello").unwrap();
        tar.file("program", 0o755, &[7; 1025]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        std::fs::write(&path, tar.finish()).unwrap();
        let listed = std::process::Command::new("tar").arg("-tvf").arg(&path).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        let told: Vec<_> = lines.iter().map(|words| (words[0], words[1], words[2], *words.last().unwrap())).collect();
        let root = "0/0";
        assert_eq!(
            told,
            [
                ("drwxr-xr-x", root, "0", "etc/"),
                ("-rw-r--r--", root, "5", "etc/text"),
                ("-rwxr-xr-x", root, "1025", "program")
            ]
        );
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        assert!(Tar::default().file(&"x".repeat(101), 0o644, b"").is_err());
    }
}
