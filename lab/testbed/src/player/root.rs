//! A root file system for each container, in its own mount namespace.
//!
//! It contains what a small image would (the machine's libraries, read-only, and a few files of /etc), the program
//! under the name that the manifest uses, and the volumes. So a program finds its ServiceAccount's token at the usual
//! path, sees nothing of the machine except through hostPath volumes, and everything else it writes is discarded with
//! it. The mounts exist only in the namespace and end with the process.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, SecurityContext};

/// The user of minimal images when the manifest sets runAsNonRoot without a user id.
const NON_ROOT: i64 = 65532;

/// A volume that appears in the container.
pub(super) struct Mount {
    pub(super) source: PathBuf,
    pub(super) target: String,
    pub(super) read_only: bool,
}

/// The mounts of a container, from the volumes of its Pod.
pub(super) fn mounts(
    container: &Container,
    volumes: &std::collections::BTreeMap<String, PathBuf>,
) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes.get(&mount.name).ok_or_else(|| format!("there is no volume {:?}", mount.name))?;
        mounts.push(Mount {
            source: mount.sub_path.as_deref().map_or_else(|| volume.clone(), |sub| volume.join(sub)),
            target: mount.mount_path.clone(),
            read_only: mount.read_only.unwrap_or(false),
        });
    }
    // Outer before inner.
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(mounts)
}

/// A shell script that builds the root in `root` and executes the program, which is at `entry` in it. The script's
/// arguments are passed to the program. Every step uses `exec`, so the process keeps its id.
pub(super) fn script(
    root: &Path,
    program: &Path,
    entry: &str,
    working_dir: Option<&str>,
    mounts: &[Mount],
    identity: &Identity,
    resolv_conf: Option<&Path>,
) -> String {
    let at = |path: &str| quote(&format!("{}{path}", root.display()));
    let mut lines = vec![
        "set -e".to_owned(),
        format!("mount -t tmpfs -o mode=755 capmaas-testbed {}", at("")),
        format!("cd {}", at("")),
        "mkdir -p proc sys dev etc run tmp usr var".to_owned(),
        "chmod 1777 tmp".to_owned(),
        // As in Debian, and relative: it is also followed before the root is changed.
        "ln -s ../run var/run".to_owned(),
        "for dir in proc sys dev; do mount --rbind /$dir $dir; done".to_owned(),
        "mount --bind /usr usr".to_owned(),
        "mount -o remount,bind,ro usr".to_owned(),
        "for dir in bin sbin lib lib32 lib64 libx32; do".to_owned(),
        "  if [ -L /$dir ]; then cp -P /$dir $dir".to_owned(),
        "  elif [ -d /$dir ]; then mkdir $dir; mount --bind /$dir $dir; mount -o remount,bind,ro $dir; fi".to_owned(),
        "done".to_owned(),
        "for file in hosts resolv.conf nsswitch.conf passwd group localtime ld.so.cache ld.so.conf; do".to_owned(),
        "  if [ -f /etc/$file ]; then cp -L /etc/$file etc/$file; fi".to_owned(),
        "done".to_owned(),
        resolv_conf
            .map_or_else(String::new, |path| format!("cp {} etc/resolv.conf", quote(&path.display().to_string()))),
        "if [ -d /etc/ssl ]; then mkdir etc/ssl; mount --bind /etc/ssl etc/ssl; fi".to_owned(),
        format!("mkdir -p {}", at(parent(entry))),
        format!("touch {0}; mount --bind {1} {0}", at(entry), quote(&program.display().to_string())),
    ];
    for mount in mounts {
        let (source, target) = (quote(&mount.source.display().to_string()), at(&mount.target));
        lines.push(format!(
            "if [ -d {source} ]; then mkdir -p {target}; else mkdir -p {}; touch {target}; fi",
            at(parent(&mount.target))
        ));
        lines.push(format!("mount --rbind {source} {target}"));
        if mount.read_only {
            lines.push(format!("mount -o remount,bind,ro {target}"));
        }
    }
    if identity.read_only_root {
        lines.push(format!("mount -o remount,ro {}", at("")));
    }
    lines.push("unset PWD OLDPWD".to_owned());
    let dir = working_dir.map(|dir| format!("/usr/bin/env --chdir={} ", quote(dir))).unwrap_or_default();
    lines.push(format!("exec chroot {} {}{dir}{} \"$@\"", at(""), identity.setpriv(), quote(entry)));
    lines.join("\n")
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Quotes text as one word of a shell script.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The user that a container runs as, and its restrictions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    user: Option<i64>,
    group: Option<i64>,
    no_capabilities: bool,
    no_new_privileges: bool,
    read_only_root: bool,
}

impl Identity {
    pub(super) fn of(pod: &Pod, container: &Container) -> Self {
        let own = container.security_context.clone().unwrap_or_default();
        let shared = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
        let non_root = own.run_as_non_root.or(shared.run_as_non_root) == Some(true);
        let user = own.run_as_user.or(shared.run_as_user).or(non_root.then_some(NON_ROOT));
        Self {
            user,
            group: own.run_as_group.or(shared.run_as_group).or(user),
            no_capabilities: drops_all(&own),
            no_new_privileges: own.allow_privilege_escalation == Some(false),
            read_only_root: own.read_only_root_filesystem == Some(true),
        }
    }

    /// The command prefix that switches to this identity and executes what follows.
    fn setpriv(&self) -> String {
        let mut flags = Vec::new();
        if let Some(group) = self.group {
            flags.push(format!("--regid={group} --clear-groups"));
        }
        if let Some(user) = self.user {
            flags.push(format!("--reuid={user}"));
        }
        if self.no_capabilities {
            flags.push("--inh-caps=-all --bounding-set=-all".into());
        }
        if self.no_new_privileges {
            flags.push("--no-new-privs".into());
        }
        if flags.is_empty() { String::new() } else { format!("/usr/bin/setpriv {} -- ", flags.join(" ")) }
    }
}

fn drops_all(context: &SecurityContext) -> bool {
    let dropped = context.capabilities.as_ref().and_then(|capabilities| capabilities.drop.as_deref());
    dropped.is_some_and(|dropped| dropped.iter().any(|name| name == "ALL"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_manifest_decides_as_whom_a_container_runs() {
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"containers": [], "securityContext": {"runAsNonRoot": true}}}))
                .unwrap();
        let container = serde_json::from_value(json!({"name": "c", "securityContext":
            {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true}}))
        .unwrap();
        assert_eq!(
            Identity::of(&pod, &container).setpriv(),
            "/usr/bin/setpriv --regid=65532 --clear-groups --reuid=65532 --inh-caps=-all --bounding-set=-all --no-new-privs -- "
        );
        assert_eq!(Identity::of(&Pod::default(), &Container::default()).setpriv(), "");
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quote("a'b c"), r"'a'\''b c'");
    }
}
