#!/bin/sh
# install_test.sh BUILD_DIR SCRATCH_DIR: what is installed can be used by a CMake project and through
# pkg-config, from another folder than it was built for.
set -eu
build=$1
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/project"
for component in libspccl libspccl-dev; do
  cmake --install "$build" --prefix "$scratch/prefix" --component "$component" >/dev/null
done
cat >"$scratch/project/main.c" <<'END'
#include <spccl/spccl.h>
int main(void) {
  int version = 0;
  return spcclGetVersion(&version) == spcclSuccess && version == SPCCL_VERSION_CODE ? 0 : 1;
}
END
cat >"$scratch/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(spccl 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE spccl::spccl)
END
cmake -S "$scratch/project" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/user"

pc=$(find "$scratch/prefix" -name spccl.pc)
export PKG_CONFIG_PATH="${pc%/*}"
libdir=$(pkg-config --variable=libdir spccl)
cc "$scratch/project/main.c" $(pkg-config --cflags --libs spccl) -o "$scratch/user"
LD_LIBRARY_PATH="$libdir" "$scratch/user"
