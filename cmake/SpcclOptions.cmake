# Options and build-wide settings. Nothing here is specific to one target except through
# spccl_flags, the interface library that every target of the project links privately.
option(SPCCL_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SPCCL_FUZZ "Build the fuzzers (needs clang)" OFF)
set(SPCCL_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")

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
  target_link_options(spccl_flags INTERFACE -fsanitize=${SPCCL_SANITIZE})
endif()
