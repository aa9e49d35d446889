#!/usr/bin/env bash
# Measures spccl against Open MPI and gloo on this machine, all in turn in one run, and holds the
# result against the project's targets. Needs a release build and python3; peers that were not built
# are left out. Options: see bench/compare.sh --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 > /dev/null || { echo "compare.sh: python3 is not installed" >&2; exit 1; }
exec python3 "$here/compare.py" "$@"
