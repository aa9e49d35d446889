#!/usr/bin/env bash
# Several ranks on the first GPU through daemons of their own, every result checked:
#
#   tests/gpu/ranks.sh DIR KERNELS RANKS [spccl-perf's options...]
#
# DIR has spccl-perf and spccld, KERNELS is libspccl_device.so. Ends with 0 if all is right and the
# daemon worked on the GPU's memory itself.
set -euo pipefail
dir="${1:?}" kernels="${2:?}" ranks="${3:?}"
shift 3
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0}"
count=0
check() {
  "$dir/spccl-perf" --device cuda:0 --ranks "$ranks" --iters 3 --warmup 1 --check --handed-over \
    "--daemon-arg=--gpu-kernels=$kernels" "$@"
  count=$((count + 1))
}
for sparsity in 0 0.9 0.999; do
  check --op all_reduce --sizes "4K,16M" --sparsity "$sparsity" "$@"
done
check --op all_reduce --sizes "4K,16M" --sparsity 0.99 --dtype bfloat16 "$@"
check --op all_reduce --sizes "1M" --sparsity 0.99 --redop max --dtype int32 "$@"
check --op reduce_scatter --sizes "16M" --sparsity 0.99 "$@"
check --op all_gather --sizes "16M" --sparsity 0.99 "$@"
echo "$ranks ranks: $count runs, all results right"
