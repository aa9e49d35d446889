# Precompiled headers, files compiled together and a faster linker, for builds that are made from scratch
# often: the sanitizers' presets, and what .ci/run makes of release. Off by default, so that dev
# and release prove that every file includes what it uses, and are linked by the system's own linker.
#
# A few headers, each compiled once: for the libraries what nearly every file includes; for cold code that
# and what is dear in it; for the tests the same with GoogleTest. A compiler takes a header for the
# optimisation that it was compiled for only, so some are made twice.
option(SPCCL_PRECOMPILE "Precompile the headers that nearly all files include" OFF)

set(SPCCL_COMMON_HEADERS
  <algorithm> <array> <atomic> <cstdint> <cstring> <functional> <map> <memory> <mutex> <span> <string>
  <string_view> <thread> <utility> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
# What takes the compiler a second and more to read. It reads of a header that clang has precompiled only
# what a file uses.
set(SPCCL_HEAVY_HEADERS
  <chrono> <filesystem> <fstream> <optional> <set> <sstream> <unordered_map> <variant>
  <grpcpp/grpcpp.h> <nlohmann/json.hpp>)

# Makes the target that owns a precompiled header; others reuse it by spccl_precompile().
function(spccl_precompiled_header NAME)
  # CONFIGURE, not WRITE: configuring again leaves it as it is, and all that was compiled with it.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompile/${NAME}.cc CONTENT "")
  add_library(${NAME} OBJECT ${PROJECT_BINARY_DIR}/precompile/${NAME}.cc)
  target_link_libraries(${NAME} PRIVATE spccl_flags absl::status absl::statusor absl::strings)
  target_precompile_headers(${NAME} PRIVATE ${ARGN})
endfunction()

# The same with GoogleTest, and with ARGN, for tests.
function(spccl_precompiled_test_header NAME)
  spccl_precompiled_header(${NAME} ${SPCCL_COMMON_HEADERS} ${ARGN} <gmock/gmock.h> <gtest/gtest.h>)
  target_link_libraries(${NAME} PRIVATE GTest::gmock)
  # As the executables that use it, or the compiler refuses it.
  set_target_properties(${NAME} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${NAME} PRIVATE -fPIE)
endfunction()

# Of such builds, those for sanitizers compile without optimisation the tests themselves, which are half
# of all, and what is not on the way of the data: that takes the compiler half the time.
if(SPCCL_PRECOMPILE AND SPCCL_SANITIZE)
  set(SPCCL_COMPILE_FAST ON)
endif()
function(spccl_compile_fast NAME)
  if(SPCCL_COMPILE_FAST)
    target_compile_options(${NAME} PRIVATE -O0)
  endif()
endfunction()
# And what is installed: a third of the compiler's time less than with -O3. Not with a precompiled header:
# what g++ makes of the heavy ones is 200 MB, and takes it longer to read than they.
function(spccl_compile_cold NAME)
  spccl_compile_fast(${NAME})
  set_target_properties(${NAME} PROPERTIES SPCCL_COLD ON)
  target_compile_options(${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(SPCCL_COMPILE_FAST)
    # Programs as libraries, which own the header.
    target_compile_options(${NAME} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
    spccl_precompile(${NAME} spccl_precompiled_cold)
  endif()
endfunction()

find_program(SPCCL_LLD ld.lld)
if(SPCCL_PRECOMPILE)
  if(SPCCL_LLD)
    target_link_options(spccl_flags INTERFACE -fuse-ld=lld)
  endif()
  # ccache takes the header's content for granted only when told that it may. That a file depends on what
  # the compiler says, and not on a preprocessor's run before it, spares that run. The headers must come
  # from the cache too: g++ makes no two alike, and then nothing that was compiled with them is found.
  if(CMAKE_CXX_COMPILER_LAUNCHER STREQUAL "${SPCCL_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1
        ${SPCCL_CCACHE})
  endif()
  # For every target alike: some packages' targets bring it, and it defines _REENTRANT, without which
  # their users could not share a precompiled header with the others.
  target_compile_options(spccl_flags INTERFACE -pthread)
  spccl_precompiled_header(spccl_precompiled ${SPCCL_COMMON_HEADERS})
  if(SPCCL_COMPILE_FAST)
    spccl_precompiled_header(spccl_precompiled_cold ${SPCCL_COMMON_HEADERS} ${SPCCL_HEAVY_HEADERS}
                             <CLI/CLI.hpp>)
    target_link_libraries(spccl_precompiled_cold PRIVATE CLI11::CLI11 gRPC::grpc++
                          nlohmann_json::nlohmann_json)
    set_target_properties(spccl_precompiled_cold PROPERTIES SPCCL_COLD ON)
    spccl_compile_fast(spccl_precompiled_cold)
  endif()
  if(SPCCL_BUILD_TESTS AND SPCCL_COMPILE_FAST)
    spccl_precompiled_test_header(spccl_precompiled_test ${SPCCL_HEAVY_HEADERS})
    target_link_libraries(spccl_precompiled_test PRIVATE gRPC::grpc++ nlohmann_json::nlohmann_json)
    spccl_compile_fast(spccl_precompiled_test)
    spccl_precompiled_test_header(spccl_precompiled_test_optimised)
  elseif(SPCCL_BUILD_TESTS)
    spccl_precompiled_test_header(spccl_precompiled_test)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(spccl_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>
                           $<$<COMPILE_LANGUAGE:CXX>:-Winvalid-pch>)
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # What is in the header, not when it was written: in a new folder the cached one is as good.
    target_compile_options(spccl_flags INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()

# Lets a target of the project use the precompiled header that `from` owns.
function(spccl_precompile NAME FROM)
  if(SPCCL_PRECOMPILE)
    target_precompile_headers(${NAME} REUSE_FROM ${FROM})
  endif()
endfunction()
