#!/usr/bin/env bash
# Runs random jobs on daemons that are harmed, and checks every result. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'USAGE'
Usage: tools/soak.sh MINUTES [OPTIONS]

Starts three daemons, as root on hosts of a lab (tools/netlab.sh) with TLS, else all on this machine.
Then, until the time is up, one episode after the other: several jobs at once, on one host or over
several, with random operations, sizes, types, sparsities, buffers, groups, streams and communicators,
each result checked; and to some of them something happens: a rank is killed or frozen, an operator
aborts or changes thresholds, codecs and algorithms, a daemon is killed or stopped and started again, a
host is cut off briefly or for long, packets are lost. Who is harmed must be told why, whoever is not must
notice nothing. After each episode the daemons must hold nothing of anybody's; descriptors, mappings,
files, threads and memory must not grow from the first such moment to the last.

The seed is printed. The same seed makes the same decisions, though not at the same nanosecond. Exits
with 0 if all was well; else prints what was found, where all that could be seen is, and how to run the
episode again.

  MINUTES       how long; fractions are fine
  --seed N      of all decisions (default: a new one)
  --only N      runs episode N of the seed again and again
  --bin DIR     of spccld, spcclctl and soak-job (default: build/release/bin)
  --out DIR     for logs and what is found (default: build/soak)
  --no-lab      no lab, also as root: nothing is cut off or lost
  --sanitized   the programs are: they are slower, and their resident memory tells nothing
  --scale X     the largest buffers are X times the usual ones
  --dry         prints the first 20 episodes and runs none
USAGE
}

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  '') usage >&2 && exit 2 ;;
esac
exec python3 "$here/soak/soak.py" "$@"
