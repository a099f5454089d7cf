#!/usr/bin/env bash
# Builds lxd-test, vmhost-test and maas-test as static programs and copies them to a node over ssh.
#
#   ./build-and-transfer.sh --host <target-host> [--key <path/to/key.pem>] [--user <username>]
#
# They arrive in the user's home directory as lxd-test-linux, vmhost-test-linux and maas-test-linux.
set -euo pipefail

PROGRAMS=(lxd-test vmhost-test maas-test)

usage() {
  cat <<'USAGE'
Usage: ./build-and-transfer.sh --host <target-host> [--key <path/to/key.pem>] [--user <username>]

  --host  node to copy to: a name or address that ssh knows
  --key   private key to log in with; by default what ssh itself would use
  --user  user to log in as; by default what ssh itself would use

Further options go to ssh and scp by SSH_OPTIONS, for example SSH_OPTIONS="-o Port=2222".
TARGET chooses another machine, for example TARGET=aarch64-unknown-linux-musl; PROFILE=rel-quick builds in a fraction of the time.
USAGE
}

fail() {
  echo "build-and-transfer: $*" >&2
  exit 1
}

host= key= user=
while (($#)); do
  case $1 in
    --host=* | --key=* | --user=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --host | --key | --user)
      (($# >= 2)) && [[ -n $2 ]] || fail "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift 2
      ;;
    -h | --help)
      usage
      exit
      ;;
    *)
      usage >&2
      fail "$1 is not an option"
      ;;
  esac
done
if [[ -z $host ]]; then
  usage >&2
  fail "--host is missing"
fi
# A host or user that starts with a dash would be an option of ssh.
[[ $host != -* && $user != -* ]] || fail "neither host nor user starts with a dash"
[[ -z $key || -r $key ]] || fail "the key $key cannot be read"
# This script goes to its own folder below.
[[ -z $key ]] || key=$(realpath -- "$key")
for program in ssh scp; do
  command -v "$program" >/dev/null || fail "$program is missing: install it"
done

cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
bin=$here/bin

# The pinned compiler of this repository builds them.
built="$(../hack/build-static capmaas-diag | tail -n 1)"

mkdir -p "$bin"
files=()
for program in "${PROGRAMS[@]}"; do
  install -m 0755 "$built/$program" "$bin/$program-linux"
  files+=("$bin/$program-linux")
done

# Unquoted on purpose: several options in one variable.
# shellcheck disable=SC2206
options=(${SSH_OPTIONS:-})
[[ -z $key ]] || options+=(-i "$key" -o IdentitiesOnly=yes)
[[ -z $user ]] || options+=(-o "User=$user")

# scp wants an IPv6 address in brackets.
place=$host
[[ $host != *:* || $host == \[* ]] || place="[$host]"
echo "copying ${files[*]##*/} to $host"
scp "${options[@]}" -- "${files[@]}" "$place:" || fail "the copy failed: try \"ssh ${user:+$user@}$host\" first"

cat <<NEXT
Now on $host:
  sudo ./lxd-test-linux --storage-backend=zfs --storage-size=50 --network-bridge=br0
  export MAAS_API_KEY=...   # or --maas-api-key, which other users of that machine can read
  ./vmhost-test-linux --node-ip=<node-ip> --maas-endpoint=http://<maas-server>:5240/MAAS --zone=default --resource-pool=default
  ./maas-test-linux --test-vm-host --node-ip=<node-ip> --maas-endpoint=http://<maas-server>:5240/MAAS --zone=default --resource-pool=default
NEXT
