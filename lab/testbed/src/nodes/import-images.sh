# Brings container images into the containerd of a root file system that does not run: its own containerd does it, in a mount and PID
# namespace of this script's own. Arguments: the root file system and the archive, which is inside it.
set -eu
root=$1 archive=$2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount --rbind /sys sys
mount --bind /dev dev
chroot . /usr/bin/containerd >/dev/null 2>"$root.containerd.log" &
containerd=$!
ready=0
while [ $ready -lt 100 ]; do
  chroot . ctr version >/dev/null 2>&1 && break
  ready=$((ready + 1))
  sleep 0.1
done
chroot . ctr --namespace k8s.io images import "$archive" || { tail -n 5 "$root.containerd.log" >&2; exit 1; }
kill "$containerd"
wait "$containerd" || true
