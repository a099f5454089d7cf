# Cleans up after one testbed, whatever ended it.
# Arguments: the testbed's id and its folder. The only writer of standard input is the process that owns the testbed,
# so the end of that file is the end of the owner: an orderly stop, a panic, kill -9 alike.
id=$1 dir=$2
trap '' HUP INT TERM PIPE
# Held while this testbed is alive: `testbed clean` leaves locked folders alone.
exec 9>"$dir/.guard.lock" && flock 9
echo ready
# Without the lock: should this script be killed, a cat that ends a moment later would make it look alive.
cat >/dev/null 9>&-

# Whoever was started for this testbed, however deep, carries its id in the environment. A process may fork between two
# looks, so it takes two empty ones in a row.
quiet=0 looks=0
while [ $quiet -lt 2 ] && [ $looks -lt 500 ]; do
  looks=$((looks + 1))
  pids=$(grep -lszx "CAPMAAS_TESTBED=$id" /proc/[0-9]*/environ | cut -d/ -f3)
  if [ -z "$pids" ]; then quiet=$((quiet + 1)); else quiet=0; kill -9 $pids 2>/dev/null; sleep 0.02; fi
done

# Nobody else removes the control groups of machines that were killed. What ran in a machine ends a moment after its first process.
tries=0
while [ $tries -lt 100 ] && groups=$(find /sys/fs/cgroup -depth -type d -path "*/lxc.*capmaas-$id*" 2>/dev/null) && [ -n "$groups" ]; do
  tries=$((tries + 1))
  rmdir $groups 2>/dev/null || sleep 0.1
done

for namespace in /run/netns/capmaas-"$id"*; do
  [ -e "$namespace" ] && ip netns delete "${namespace##*/}" 9>&-
done

# Deepest first. A mount may sit on another, hence the rounds.
rounds=0
while [ $rounds -lt 10 ]; do
  rounds=$((rounds + 1))
  mounts=$(awk -v d="$dir" '$5 == d || index($5, d "/") == 1 { print $5 }' /proc/self/mountinfo | sort -r)
  [ -z "$mounts" ] && break
  for mount in $mounts; do umount -l "$mount" 2>/dev/null; done
done
if command -v losetup >/dev/null; then
  losetup -a -n -O NAME,BACK-FILE -l 2>/dev/null | awk -v d="$dir" 'index($2, d "/") == 1 { print $1 }' |
    while read -r device; do losetup -d "$device" 2>/dev/null; done
fi

tries=0
while [ -e "$dir" ] && [ $tries -lt 50 ]; do
  tries=$((tries + 1))
  rm -rf --one-file-system "$dir" 2>/dev/null || sleep 0.1
done
[ ! -e "$dir" ]
