#!/usr/bin/env bash
# Measures spccl, Open MPI and gloo between hosts made of network namespaces. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'USAGE'
Usage: bench/across.sh [targets | sweeps | auto | tune | classifier] [OPTIONS]

  targets     (default) spccl, Open MPI and gloo in turn on 2 and 4 hosts, held against the targets
  sweeps      send thresholds and channels: CSV files and PNG plots
  auto        codec and threshold auto against every fixed setting, by link, size and sparsity
  tune        spccl-tune: every plan by size and density, and a model that chooses
  classifier  an epoch of examples/classifier, dense, sparse, and with the peers' all-reduce

`bench/across.sh WHAT --help` shows its options. Needs root (tools/netlab.sh), python3, a release
build; iperf3 for targets, gnuplot for sweeps; peers that were not built are left out.
USAGE
}

what=targets
case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  targets | sweeps | auto | tune | classifier) what=$1 && shift ;;
  -* | '') ;;
  *) usage >&2 && exit 2 ;;
esac
command -v python3 > /dev/null || { echo "across.sh: python3 is not installed" >&2; exit 1; }
exec python3 "$here/across/$what.py" "$@"
