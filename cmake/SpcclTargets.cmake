# The project's three kinds of target. Each links spccl_flags privately, so that no flag is global.

# TOGETHER below: builds that precompile headers also compile the sources as one file, for a target
# whose files all include a heavy header.
function(spccl_compile_together NAME)
  if(SPCCL_PRECOMPILE)
    set_target_properties(${NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

# spccl_library(NAME SRCS a.cc... DEPS lib... [TOGETHER]): a static library with the alias spccl::NAME;
# with no sources, a header-only one.
function(spccl_library NAME)
  cmake_parse_arguments(ARG "TOGETHER" "" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(spccl_${NAME} STATIC ${ARG_SRCS})
    target_link_libraries(spccl_${NAME} PRIVATE spccl_flags PUBLIC ${ARG_DEPS})
    target_include_directories(spccl_${NAME} PUBLIC ${PROJECT_SOURCE_DIR})
    spccl_precompile(spccl_${NAME} spccl_precompiled)
    if(ARG_TOGETHER)
      spccl_compile_together(spccl_${NAME})
    endif()
  else()
    add_library(spccl_${NAME} INTERFACE)
    target_link_libraries(spccl_${NAME} INTERFACE ${ARG_DEPS})
    target_include_directories(spccl_${NAME} INTERFACE ${PROJECT_SOURCE_DIR})
  endif()
  add_library(spccl::${NAME} ALIAS spccl_${NAME})
endfunction()

# spccl_binary(NAME SRCS a.cc... DEPS lib...): an executable in bin/.
function(spccl_binary NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE spccl_flags ${ARG_DEPS})
endfunction()

# spccl_test(NAME SRCS a_test.cc... DEPS lib... [TIMEOUT s] [LABELS l...] [TOGETHER]): a GoogleTest
# executable that ctest runs whole, as one test (a process a case would cost more than the cases). Those
# that may take longest (TIMEOUT) start first, so that none of them is left alone at the end.
function(spccl_test NAME)
  cmake_parse_arguments(ARG "TOGETHER" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE spccl_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  spccl_precompile(${NAME} spccl_precompiled_test)
  if(ARG_TOGETHER)
    spccl_compile_together(${NAME})
  endif()
  add_test(NAME ${NAME} COMMAND ${NAME})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT}
                       LABELS "${ARG_LABELS}" ENVIRONMENT "${SPCCL_TEST_ENVIRONMENT}")
endfunction()

# What tests' processes read (gRPC's other resolver leaks; spccld sets it itself), including the daemons and ranks that a test starts.
set(SPCCL_TEST_ENVIRONMENT
  "GRPC_DNS_RESOLVER=native"
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  # Ranks are forked, also from programs with threads: their own then start anew.
  "TSAN_OPTIONS=suppressions='${PROJECT_SOURCE_DIR}/cmake/tsan.supp':second_deadlock_stack=1:die_after_fork=0")
if(SPCCL_SANITIZE MATCHES "thread")
  # UCX patches madvise, which a thread calls when it ends, after ThreadSanitizer has let go of it.
  list(APPEND SPCCL_TEST_ENVIRONMENT "UCX_MEM_MMAP_HOOK_MODE=none")
endif()

# spccl_fuzzer(NAME SRCS a_fuzz.cc... DEPS lib... [SEEDS dir...]): SRCS define LLVMFuzzerTestOneInput.
# With the fuzz preset it is a libFuzzer binary (target `fuzzers` builds all) and a test that fuzzes
# for SPCCL_FUZZ_SECONDS; without, a plain test that replays its seeds and some mutations of them.
# Every file in SEEDS is an input to start from; NAME_seeds beside the caller is one where it exists.
set(SPCCL_FUZZ_SECONDS 60 CACHE STRING "How long each fuzzer runs as a test")
if(SPCCL_FUZZ)
  add_custom_target(fuzzers)
endif()
function(spccl_fuzzer NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;SEEDS" ${ARGN})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}_seeds)
    list(APPEND ARG_SEEDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}_seeds)
  endif()
  if(SPCCL_FUZZ)
    add_executable(${NAME} ${ARG_SRCS})
    add_dependencies(fuzzers ${NAME})
    target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
    set(corpus ${CMAKE_CURRENT_BINARY_DIR}/${NAME}_corpus)
    file(MAKE_DIRECTORY ${corpus})
    add_test(NAME ${NAME} COMMAND ${NAME} -max_total_time=${SPCCL_FUZZ_SECONDS} -max_len=65536
             -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 ${corpus} ${ARG_SEEDS})
    math(EXPR limit "${SPCCL_FUZZ_SECONDS} + 120")
  else()
    add_executable(${NAME} ${ARG_SRCS} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    add_test(NAME ${NAME} COMMAND ${NAME} ${ARG_SEEDS})
    set(limit 120)
  endif()
  target_link_libraries(${NAME} PRIVATE spccl_flags ${ARG_DEPS})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${limit} LABELS fuzz
                       ENVIRONMENT "${SPCCL_TEST_ENVIRONMENT}")
endfunction()
