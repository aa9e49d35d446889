# Options and build-wide settings. Nothing here is specific to one target except through
# spccl_flags, the interface library that every target of the project links privately.
option(SPCCL_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SPCCL_BUILD_BENCH "Build the benchmarks (spccl-perf, codec-bench, spccl-model, peers)" ${PROJECT_IS_TOP_LEVEL})
option(SPCCL_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(SPCCL_FUZZ "Build the fuzzers (needs clang; instruments everything for libFuzzer)" OFF)
set(SPCCL_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")
if(SPCCL_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "SPCCL_FUZZ needs clang (found ${CMAKE_CXX_COMPILER_ID}): use --preset asan")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
include(GNUInstallDirs)
# Installed programs find the library from where they are, so that an installation can be moved.
file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH lib_from_libexec ${CMAKE_INSTALL_FULL_LIBEXECDIR}/spccl ${CMAKE_INSTALL_FULL_LIBDIR})
# Where the kernels for GPUs are installed, and where spccld looks for them from where it is.
set(SPCCL_DEVICE_DIR ${CMAKE_INSTALL_LIBDIR}/spccl)
file(RELATIVE_PATH device_from_sbin ${CMAKE_INSTALL_FULL_SBINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/spccl)
set(CMAKE_INSTALL_RPATH $ORIGIN/${lib_from_bin} $ORIGIN/${lib_from_libexec})

find_program(SPCCL_CCACHE ccache)
if(SPCCL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SPCCL_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${SPCCL_CCACHE})
endif()

add_library(spccl_flags INTERFACE)
target_compile_options(spccl_flags INTERFACE -Wall -Wextra -Wno-unused-parameter)
target_include_directories(spccl_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(SPCCL_SANITIZE)
  target_compile_options(spccl_flags INTERFACE -fsanitize=${SPCCL_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(SPCCL_SANITIZE MATCHES "address,undefined")
    # A third of the compiler's time, of kernels nearly half, for what AddressSanitizer finds when the
    # memory is touched; of vptr, objects that are gone, not the wrong class of a live one.
    target_compile_options(spccl_flags INTERFACE -fno-sanitize=null,object-size,vptr,pointer-overflow)
  endif()
  target_link_options(spccl_flags INTERFACE -fsanitize=${SPCCL_SANITIZE})
  # By these g++ tells the code which sanitizer it is compiled with; clang tells it otherwise.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    foreach(one address thread)
      if(SPCCL_SANITIZE MATCHES ${one})
        string(TOUPPER ${one} name)
        target_compile_definitions(spccl_flags INTERFACE __SANITIZE_${name}__=1)
      endif()
    endforeach()
  endif()
endif()
if(SPCCL_FUZZ)
  # Not the tests, whose ways no fuzzer looks for, nor where none gets: cold code, what is on the other side
  # of a session or of a link, programs.
  set(unfuzzed "")
  foreach(folder bench client collective/transport collective/CMakeFiles/spccl_transport examples tests)
    string(APPEND unfuzzed "src:${PROJECT_SOURCE_DIR}/${folder}*\nsrc:${PROJECT_BINARY_DIR}/${folder}*\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/fuzz.ignore CONTENT "${unfuzzed}")
  set(fuzzed -fsanitize=fuzzer-no-link
             -fsanitize-coverage-ignorelist=${PROJECT_BINARY_DIR}/fuzz.ignore)
  target_compile_options(spccl_flags INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:SPCCL_COLD>>>:${fuzzed}>")
endif()
