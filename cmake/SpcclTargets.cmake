# The project's three kinds of target. Each links spccl_flags privately, so that no flag is global.

# Builds that precompile headers compile a target's sources as one file: they share the heavy headers, and
# what templates make of them. A source with flags of its own stays alone; APART below: all of a
# target's do.
function(spccl_compile_together NAME APART)
  if(SPCCL_PRECOMPILE AND NOT APART)
    set_target_properties(${NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

# spccl_library(NAME SRCS a.cc... DEPS lib... [APART] [COLD] [TRUSTED]): a static library with the alias
# spccl::NAME; with no sources, a header-only one. COLD: not on the way of the data, so that the compiler
# may be fast instead. TRUSTED: what tests compare with, in a thread of their own; sanitizers
# look at what is tested and not at that, which would take them longer.
function(spccl_library NAME)
  cmake_parse_arguments(ARG "APART;COLD;TRUSTED" "" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(spccl_${NAME} STATIC ${ARG_SRCS})
    target_link_libraries(spccl_${NAME} PRIVATE spccl_flags PUBLIC ${ARG_DEPS})
    target_include_directories(spccl_${NAME} PUBLIC ${PROJECT_SOURCE_DIR})
    if(ARG_COLD)
      spccl_compile_cold(spccl_${NAME})
    elseif(ARG_TRUSTED AND SPCCL_SANITIZE)
      target_compile_options(spccl_${NAME} PRIVATE -fno-sanitize=all -O2)
    elseif(NOT (ARG_APART AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
      # With a precompiled header g++ compiles functions for another instruction set (#pragma GCC target)
      # by the header's flags: the kernels' -ffp-contract=off was lost.
      spccl_precompile(spccl_${NAME} spccl_precompiled)
    endif()
    spccl_compile_together(spccl_${NAME} ${ARG_APART})
  else()
    add_library(spccl_${NAME} INTERFACE)
    target_link_libraries(spccl_${NAME} INTERFACE ${ARG_DEPS})
    target_include_directories(spccl_${NAME} INTERFACE ${PROJECT_SOURCE_DIR})
  endif()
  add_library(spccl::${NAME} ALIAS spccl_${NAME})
endfunction()

# A data race takes two threads. With the option, a test that has but one is neither built nor run, and
# nothing is built that no test runs: for CI's ThreadSanitizer, which finds nothing in them.
option(SPCCL_TEST_THREADS_ONLY "Only the tests whose code starts threads or processes" OFF)

# For CI's release build: the code that is written for a compiler and its processor runs as it is installed,
# everything else under the sanitizers.
option(SPCCL_TEST_KERNELS_ONLY "Of the tests, only those of kernels/" OFF)

# spccl_binary(NAME SRCS a.cc... DEPS lib... [UNTESTED] [COLD]): an executable in bin/. UNTESTED: no test
# runs it. COLD: as of spccl_library().
function(spccl_binary NAME)
  cmake_parse_arguments(ARG "UNTESTED;COLD" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE spccl_flags ${ARG_DEPS})
  spccl_compile_together(${NAME} OFF)
  if(ARG_COLD)
    spccl_compile_cold(${NAME})
  endif()
  if(ARG_UNTESTED AND SPCCL_SANITIZE)
    set_target_properties(${NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# What tests' processes read (gRPC's other resolver leaks; spccld sets it itself), including the daemons and ranks that a test starts.
set(SPCCL_TEST_ENVIRONMENT
  "GRPC_DNS_RESOLVER=native"
  # What LeakSanitizer notes of thread-locals of loaded libraries is wrong once threads have come and gone: it
  # crashes at exit, one time in four in tests that load the fake CUDA. It finds them without.
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:intercept_tls_get_addr=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  # Ranks are forked, also from programs with threads: their own then start anew. By default each
  # process waits for a second before it exits, for races at exit: a thousand short ones are too many.
  # The history is long enough that a report names both stacks, by which cmake/tsan.supp goes.
  "TSAN_OPTIONS=suppressions='${PROJECT_SOURCE_DIR}/cmake/tsan.supp':second_deadlock_stack=1:die_after_fork=0:atexit_sleep_ms=0:history_size=4")
if(SPCCL_SANITIZE MATCHES "thread")
  # UCX patches madvise, which a thread calls when it ends, after ThreadSanitizer has let go of it.
  list(APPEND SPCCL_TEST_ENVIRONMENT "UCX_MEM_MMAP_HOOK_MODE=none")
endif()

# Makes a test of an executable. Those that may take longest (TIMEOUT) start first, so that none of them
# is left alone at the end.
function(spccl_run_as_test NAME)
  cmake_parse_arguments(ARG "" "SINGLE_THREADED;TIMEOUT" "ARGUMENTS;LABELS" ${ARGN})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(ARG_SINGLE_THREADED AND SPCCL_TEST_THREADS_ONLY)
    set_target_properties(${NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  elseif(ARG_SINGLE_THREADED)
    list(APPEND ARG_LABELS single_threaded)
  endif()
  add_test(NAME ${NAME} COMMAND ${NAME} ${ARG_ARGUMENTS})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT}
                       LABELS "${ARG_LABELS}" ENVIRONMENT "${SPCCL_TEST_ENVIRONMENT}")
endfunction()

# spccl_test(NAME SRCS a_test.cc... DEPS lib... [TIMEOUT s] [LABELS l...] [SINGLE_THREADED]): a GoogleTest
# executable that ctest runs whole, as one test (a process a case would cost more than the cases).
# SINGLE_THREADED, also a label: neither the test nor what it calls starts a thread, or shares memory
# with another process. OPTIMISED: the test itself computes much.
function(spccl_test NAME)
  cmake_parse_arguments(ARG "SINGLE_THREADED;OPTIMISED" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE spccl_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(ARG_OPTIMISED AND SPCCL_COMPILE_FAST)
    spccl_precompile(${NAME} spccl_precompiled_test_optimised)
  else()
    spccl_precompile(${NAME} spccl_precompiled_test)
    spccl_compile_fast(${NAME})
  endif()
  if(SPCCL_COMPILE_FAST)
    # A sixth of the compiler's time. A sanitizer's report names a test's functions all the same, and of
    # what is tested the lines, too.
    target_compile_options(${NAME} PRIVATE -g0)
  endif()
  spccl_compile_together(${NAME} OFF)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  spccl_run_as_test(${NAME} TIMEOUT ${ARG_TIMEOUT} LABELS ${ARG_LABELS}
                    SINGLE_THREADED ${ARG_SINGLE_THREADED})
endfunction()

# spccl_fuzzer(NAME SRCS a_fuzz.cc... DEPS lib... [SEEDS dir...] [SINGLE_THREADED]): SRCS define
# LLVMFuzzerTestOneInput. With SPCCL_FUZZ it is a libFuzzer binary and a test that fuzzes for
# SPCCL_FUZZ_SECONDS; without, a plain test that replays its seeds and some mutations of them. Every file in
# SEEDS is an input to start from; NAME_seeds beside the caller is one where it exists. SINGLE_THREADED: as
# of spccl_test().
set(SPCCL_FUZZ_SECONDS 60 CACHE STRING "How long each fuzzer runs as a test")
function(spccl_fuzzer NAME)
  cmake_parse_arguments(ARG "SINGLE_THREADED" "" "SRCS;DEPS;SEEDS" ${ARGN})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}_seeds)
    list(APPEND ARG_SEEDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}_seeds)
  endif()
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE spccl_flags ${ARG_DEPS})
  set(limit 120)
  if(SPCCL_FUZZ)
    target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
    set(corpus ${CMAKE_CURRENT_BINARY_DIR}/${NAME}_corpus)
    file(MAKE_DIRECTORY ${corpus})
    list(PREPEND ARG_SEEDS -max_total_time=${SPCCL_FUZZ_SECONDS} -max_len=65536 -timeout=10
         -rss_limit_mb=2048 -print_final_stats=1 ${corpus})
    math(EXPR limit "${SPCCL_FUZZ_SECONDS} + 120")
  else()
    target_sources(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  endif()
  spccl_run_as_test(${NAME} ARGUMENTS ${ARG_SEEDS} TIMEOUT ${limit} LABELS fuzz
                    SINGLE_THREADED ${ARG_SINGLE_THREADED})
endfunction()
