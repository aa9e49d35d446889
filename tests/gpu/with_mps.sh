#!/usr/bin/env bash
# Runs a command beside an MPS server of its own: tests/gpu/with_mps.sh COMMAND...
# Ends as the command does, or with 77 if no server starts.
set -uo pipefail
if [ $# -eq 0 ]; then
  echo "with_mps.sh: usage: tests/gpu/with_mps.sh COMMAND..." >&2
  exit 2
fi
CUDA_MPS_PIPE_DIRECTORY="$(mktemp -d)"
CUDA_MPS_LOG_DIRECTORY="$CUDA_MPS_PIPE_DIRECTORY"
export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
stop() {
  echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
  rm -rf "$CUDA_MPS_PIPE_DIRECTORY"
}
trap stop EXIT
trap 'exit 1' TERM INT
if ! nvidia-cuda-mps-control -d; then
  echo "no MPS server starts"
  exit 77
fi
"$@"
