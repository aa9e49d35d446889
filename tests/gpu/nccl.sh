#!/usr/bin/env bash
# Two daemons on the first GPU, two ranks each, frames between them through NCCL, every result checked:
#
#   tests/gpu/nccl.sh DIR KERNELS NCCL LOGS
#
# DIR has spccl-perf and spccld, KERNELS is libspccl_device.so, NCCL libnccl.so.2 of 2.30 or later: the
# first that lets ranks share a GPU. Ends with 0 if all is right, the daemons worked on the GPU's memory
# themselves and NCCL says that it was used.
set -euo pipefail
if [ $# -ne 4 ]; then
  echo "nccl.sh: usage: tests/gpu/nccl.sh DIR KERNELS NCCL LOGS" >&2
  exit 2
fi
dir="$1" kernels="$2" nccl="$3" logs="$4"
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0}"
export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=4
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT NCCL_DEBUG_FILE="$logs/nccl-debug.%p"
rm -f "$logs"/nccl-debug.*
check() {
  "$dir/spccl-perf" --device cuda:0 --ranks 4 --nodes 2 --iters 3 --warmup 1 --check --handed-over \
    "--daemon-arg=--gpu-kernels=$kernels" "--daemon-arg=--gpu-nccl=$nccl" "$@"
}
check --op all_reduce --sizes "64K,16M" --sparsity 0.99
check --op all_reduce --sizes "16M" --sparsity 0
check --op all_gather --sizes "16M" --sparsity 0.9
if ! grep -qs 'Init COMPLETE' "$logs"/nccl-debug.*; then
  echo "results are right, but NCCL's debug output does not say that the daemons used it"
  exit 1
fi
echo "2 daemons, 4 ranks: 3 runs through NCCL, all results right"
