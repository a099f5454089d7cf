//! Whether bootstrap data turns swap off by itself.
//!
//! kubelet refuses to start where swap is on, and MAAS creates a swap file unless a machine's `swap_size` is 0. That stays 0
//! after the release, because MAAS reads an empty size as "unchanged"; so it is written only where it is needed.

/// Whether cloud-config turns all swap off, now and after a reboot. Only commands that certainly do so count: a false positive is
/// a Node that never joins, while a superfluous write to MAAS is harmless.
pub fn ends_swap(cloud_config: &str) -> bool {
    let (mut now, mut for_good) = (false, false);
    for line in cloud_config.lines() {
        // Commands are list items: strings, or lists of words.
        let plain = line.replace(['[', ']', ',', '"', '\'', ';'], " ");
        let mut words = plain.split_whitespace().skip_while(|word| ["-", "sudo"].contains(word));
        let command = words.next().unwrap_or_default();
        if command.starts_with('#') {
            continue;
        }
        now |= command.ends_with("swapoff") && matches!(words.next(), Some("-a" | "--all"));
        let is = |word: &str| plain.split_whitespace().any(|other| other == word);
        for_good |= line.contains("swap") && ((is("sed") && is("/etc/fstab")) || (is("systemctl") && is("mask")));
    }
    now && for_good
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own templates run this script, which the bootstrap provider puts among the files.
    #[test]
    fn our_own_templates_turn_swap_off_by_themselves() {
        let script = include_str!("../../../../templates/src/parts/prepare-node.sh");
        let lines = script.replace('\n', "\n      ");
        assert!(ends_swap(&format!("#cloud-config\nwrite_files:\n-   path: /x\n    content: |\n      {lines}")));
    }

    #[test]
    fn only_commands_that_certainly_turn_swap_off_for_good_count() {
        let off = "- swapoff -a\n- sed -i '/ swap / s/^/#/' /etc/fstab";
        for data in [
            off,
            "runcmd:\n  - sudo swapoff --all\n  - \"sed -ri '/\\sswap\\s/s/^/#/' /etc/fstab\"",
            "- [ swapoff, -a ]\n- [ systemctl, mask, swap.target ]",
            "- 'swapoff -a && sed -i /swap/d /etc/fstab'",
            "/sbin/swapoff -a; sed -i '/swap/d' /etc/fstab",
        ] {
            assert!(ends_swap(data), "{data}");
        }
        for data in [
            "",
            "#cloud-config\nruncmd:\n- kubeadm join",
            "- swapoff -a",
            "- sed -i '/swap/d' /etc/fstab",
            "- swapoff /dev/sdb1\n- sed -i '/swap/d' /etc/fstab",
            "# swapoff -a\n- sed -i '/swap/d' /etc/fstab",
            "- swapoff -a\n# sed -i '/swap/d' /etc/fstab",
            "- swapoff -a\n- grep swap /etc/fstab",
            "- test -e /never && swapoff -a\n- sed -i '/swap/d' /etc/fstab",
            "- echo swapoff -a\n- sed -i '/swap/d' /etc/fstab",
        ] {
            assert!(!ends_swap(data), "{data}");
        }
    }
}
