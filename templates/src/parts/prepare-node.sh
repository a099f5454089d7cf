#!/bin/bash
# Makes a machine ready for kubeadm; safe to run again. Arguments: the Kubernetes version, whether the image has Kubernetes already
# (true or false), the snap channel of LXD or "none", where the Debian packages of Kubernetes are, the container runtime's package.
# Neither clusterctl nor cloud-init may find anything to fill in here: no braces after a dollar sign, no doubled braces.
set -euo pipefail
version=$1 has_kubernetes=$2 lxd_channel=$3 packages=$4 containerd=$5
export DEBIAN_FRONTEND=noninteractive

again() {
  for pause in 5 10 20 40; do
    "$@" && return 0
    echo "prepare-node: $* failed; once more in $pause s" >&2
    sleep "$pause"
  done
  "$@"
}

swapoff -a
sed -i '/^[^#].*\sswap\s/s/^/#/' /etc/fstab

if [ "$has_kubernetes" = true ]; then
  exit 0
fi

if [ "$lxd_channel" != none ] && ! snap list lxd >/dev/null 2>&1; then
  again snap install lxd --channel="$lxd_channel"
fi

printf 'overlay\nbr_netfilter\n' >/etc/modules-load.d/kubernetes.conf
modprobe overlay
modprobe br_netfilter
printf '%s = 1\n' net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.bridge.bridge-nf-call-iptables \
  net.bridge.bridge-nf-call-ip6tables >/etc/sysctl.d/99-kubernetes.conf
sysctl --system >/dev/null

number=$(echo "$version" | sed 's/^v//')
minor=$(echo "$number" | cut -d. -f1,2)
install -d -m 0755 /etc/apt/keyrings
again curl -fsSL -o /etc/apt/keyrings/kubernetes.asc "$packages/v$minor/deb/Release.key"
echo "deb [signed-by=/etc/apt/keyrings/kubernetes.asc] $packages/v$minor/deb/ /" >/etc/apt/sources.list.d/kubernetes.list
again apt-get update
again apt-get install --yes "$containerd" "kubelet=$number-*" "kubeadm=$number-*" "kubectl=$number-*"
apt-mark hold kubelet kubeadm kubectl

if [ "$(echo "$minor" | cut -d. -f2)" -ge 36 ] && containerd --version | grep -qE ' v?1\.'; then
  echo "prepare-node: Kubernetes $version asks for containerd 2, and $containerd is older: take a newer Ubuntu or CONTAINERD_PACKAGE" >&2
fi
install -d -m 0755 /etc/containerd
containerd config default | sed 's/SystemdCgroup = false/SystemdCgroup = true/' >/etc/containerd/config.toml
systemctl restart containerd
