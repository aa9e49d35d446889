#!/bin/sh
# exports_test.sh LIBRARY LIST: the library defines exactly the listed dynamic symbols, each under the
# version that programs were linked with.
set -eu
version=SPCCL_0 soname=libspccl.so.0

found=$(nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sort)
wanted=$(sed "s/\$/@@$version/" "$2" | sort)
vanished=$(echo "$wanted" | grep -vxF "$found" || true)
appeared=$(echo "$found" | grep -vxF "$wanted" || true)
for symbol in $vanished; do
  echo "vanished: $symbol. Programs that were linked with it no longer start: put it back. What must" \
    "go, goes with a new major version, which has another SONAME, another list and another client/spccl.map."
done
for symbol in $appeared; do
  echo "appeared: $symbol. If clients may call it, document it in client/include/spccl/spccl.h, pin its" \
    "type in tests/client/abi_pins.c and add it to $2; if not, give it another name than spccl*," \
    "which client/spccl.map exports."
done
[ -z "$vanished$appeared" ] || exit 1

is=$(readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$is" = "$soname" ] || { echo "SONAME is $is, programs ask for $soname"; exit 1; }
echo "$(echo "$found" | wc -l) symbols as listed"
