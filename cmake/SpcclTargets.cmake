# The project's three kinds of target. Each links spccl_flags privately, so that no flag is global.

# spccl_library(NAME SRCS a.cc... DEPS lib...): a static library with the alias spccl::NAME; with no
# sources, a header-only one.
function(spccl_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(spccl_${NAME} STATIC ${ARG_SRCS})
    target_link_libraries(spccl_${NAME} PRIVATE spccl_flags PUBLIC ${ARG_DEPS})
    target_include_directories(spccl_${NAME} PUBLIC ${PROJECT_SOURCE_DIR})
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

# spccl_test(NAME SRCS a_test.cc... DEPS lib... [TIMEOUT s] [LABELS l...]): a GoogleTest executable that
# ctest runs whole, as one test (a process a case would cost more than the cases).
function(spccl_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE spccl_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${NAME} COMMAND ${NAME})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
