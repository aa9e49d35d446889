#!/bin/sh
# exports_test.sh LIBRARY LIST: the library defines exactly the listed dynamic symbols.
set -eu
found=$(nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
if [ "$found" != "$(cat "$2")" ]; then
  echo "exported symbols differ from $2:"
  echo "$found" | diff "$2" - || true
  exit 1
fi
soname=$(readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = libspccl.so.0 ] || { echo "SONAME is $soname"; exit 1; }
