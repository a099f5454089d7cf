//! The script that builds the static programs and copies them to a node, against an sshd on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use capmaas_testbed::tools::unpacked;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lxd-test-tmp/build-and-transfer.sh")
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// An sshd with its own keys that admits this user by one key.
struct Sshd {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Sshd {
    fn start() -> Self {
        // An installed sshd would admit people to this machine from the next boot on.
        let sshd = unpacked("openssh-server").unwrap().join("usr/sbin/sshd");
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for name in ["host", "user"] {
            let made = run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(name)]));
            assert!(made.status.success(), "{}", text(&made));
        }
        fs::copy(at("user.pub"), at("authorized_keys")).unwrap();
        fs::create_dir(at("home")).unwrap();
        // sshd refuses to start without it; its package creates it at boot.
        fs::create_dir_all("/run/sshd").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // The copies arrive in a directory of the test instead of the user's home.
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n\
             Subsystem sftp internal-sftp -d {}\n",
            at("host"),
            at("authorized_keys"),
            at("home")
        );
        fs::write(at("sshd_config"), config).unwrap();
        // Part of it runs as a user that only its package creates.
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let user = if users.contains("\nsshd:") { "" } else { "sshd:x:64990:65534::/run/sshd:/usr/sbin/nologin\n" };
        fs::write(at("passwd"), format!("{users}{user}")).unwrap();
        let log = fs::File::create(at("log")).unwrap();
        let process = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg(r#"mount --bind "$0" /etc/passwd && exec "$@""#)
            .arg(at("passwd"))
            .arg(sshd)
            .args(["-D", "-e", "-f", &at("sshd_config")])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let sshd = Self { process, port, folder };
        for _ in 0..100 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return sshd;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("sshd does not answer: {}", fs::read_to_string(sshd.folder.path().join("log")).unwrap());
    }

    fn options(&self) -> String {
        let known = self.folder.path().join("known_hosts").display().to_string();
        format!("-F none -o Port={} -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={known}", self.port)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a 64-bit little-endian ELF program names no interpreter (program header of type 3) that would load libraries.
fn is_static(elf: &[u8]) -> bool {
    assert_eq!(&elf[..6], b"\x7fELF\x02\x01");
    let half = |at: usize| usize::from(u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()));
    let start = usize::try_from(u64::from_le_bytes(elf[32..40].try_into().unwrap())).unwrap();
    let (size, count) = (half(54), half(56));
    (0..count).all(|index| elf[start + index * size..][..4] != 3_u32.to_le_bytes())
}

#[test]
fn static_programs_are_built_and_arrive_at_the_host() {
    let sshd = Sshd::start();
    let key = sshd.folder.path().join("user");
    let output = run(Command::new(script())
        .args(["--host", "127.0.0.1", "--user", "root", "--key"])
        .arg(&key)
        // Only the copying matters here; the other profile takes many times as long to build.
        .env("PROFILE", "rel-quick")
        .env("SSH_OPTIONS", sshd.options()));
    let log = fs::read_to_string(sshd.folder.path().join("log")).unwrap();
    assert!(output.status.success(), "{}\n{log}", text(&output));
    for program in ["lxd-test", "vmhost-test", "maas-test"] {
        let arrived = sshd.folder.path().join("home").join(format!("{program}-linux"));
        assert_eq!(fs::metadata(&arrived).unwrap().permissions().mode() & 0o111, 0o111, "{program} can be started");
        let help = run(Command::new(&arrived).arg("--help"));
        assert!(help.status.success() && text(&help).contains("--json"), "{}", text(&help));
        assert!(is_static(&fs::read(&arrived).unwrap()), "{program} is static");
    }
}

#[test]
fn what_is_missing_or_wrong_is_told_before_anything_is_built() {
    for (words, told) in [
        (&[][..], "--host is missing"),
        (&["--host"], "--host needs a value"),
        (&["--host=-oProxyCommand=x"], "neither host nor user starts with a dash"),
        (&["--host", "127.0.0.1", "--key", "/nowhere.pem"], "the key /nowhere.pem cannot be read"),
        (&["--hots", "x"], "--hots is not an option"),
    ] {
        let output = run(Command::new(script()).args(words));
        assert!(!output.status.success(), "{words:?}");
        assert!(text(&output).contains(told), "{words:?}: {}", text(&output));
    }
}
