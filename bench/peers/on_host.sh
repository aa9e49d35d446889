#!/usr/bin/env bash
# Runs a command line on a host of a lab of tools/netlab.sh, named by the address it has there. What
# mpirun takes for its remote shell: --mca plm_rsh_agent 'bench/peers/on_host.sh LAB'.
#
# The host gets a name of its own as well: Open MPI names its files in /tmp and /dev/shm, which the
# hosts of a lab share, after it.
set -euo pipefail
case "${1:-}" in
  '' | -h | --help)
    echo "Usage: on_host.sh LAB ADDRESS COMMAND... (its words are joined and run by sh, as ssh does)"
    exit 0
    ;;
esac
[ $# -ge 3 ] || { echo "on_host.sh: needs a lab, an address and a command" >&2; exit 2; }
netlab=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/netlab.sh
lab=$1 host=${2##*.}
shift 2
# shellcheck disable=SC2016  # expanded on the host
exec "$netlab" --lab "$lab" exec "$host" unshare --uts \
  sh -c 'hostname "$0"; exec sh -c "$1"' "$lab-$host" "$*"
