# What `cpack` makes of an installation: Debian packages, and a tar.gz that runs from wherever it is
# unpacked. `cmake --preset package && cmake --build --preset package && cpack --preset package`.
#
#   spccld        the daemon, its systemd unit, Slurm's hooks, man page
#   spcclctl      the operator's tool, its man page and completions
#   libspcclN     the client library; N is its ABI
#   libspccl-dev  header, CMake package, pkg-config file, the first program
#   spccl-tools   spccl-perf, codec-bench, spccl-model and the classifier, to try it with
#   spccl-device  the kernels for GPUs, where they are built (SPCCL_WITH_CUDA); spccld loads them
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_VENDOR spccl)
set(CPACK_PACKAGE_CONTACT "spccl <spccl@localhost>" CACHE STRING "Maintainer of the packages")
# No summary of all: cpack would make it the line that lists of packages show, in place of what each is.
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL spccld spcclctl libspccl libspccl-dev spccl-tools)
if(SPCCL_WITH_CUDA)
  list(APPEND CPACK_COMPONENTS_ALL spccl-device)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
# The tools need a library that is in another package of the same run.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/client)

set(scripts ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_COMPONENT_SPCCLD_DESCRIPTION
    "spccl's daemon, of collectives that do not send zeros\nOwns the communicators, channels and codecs of all jobs on its node.")
set(CPACK_DEBIAN_SPCCLD_PACKAGE_NAME spccld)
set(CPACK_DEBIAN_SPCCLD_PACKAGE_SUGGESTS "munge, slurmd, spccl-device")
set(CPACK_DEBIAN_SPCCLD_PACKAGE_CONTROL_EXTRA
    "${scripts}/spccld/postinst;${scripts}/spccld/prerm;${scripts}/spccld/postrm")
set(CPACK_DEBIAN_SPCCLD_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_COMPONENT_SPCCLCTL_DESCRIPTION
    "spccl's operator tool\nShows and steers the daemon of this node.")
set(CPACK_DEBIAN_SPCCLCTL_PACKAGE_NAME spcclctl)

set(CPACK_COMPONENT_LIBSPCCL_DESCRIPTION
    "spccl's client library\nProgrammes link it; the daemon of the node does the work.")
set(CPACK_DEBIAN_LIBSPCCL_PACKAGE_NAME libspccl${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_LIBSPCCL_PACKAGE_SECTION libs)

set(CPACK_COMPONENT_LIBSPCCL-DEV_DESCRIPTION
    "Header and build files of spccl's client library\nFor find_package(spccl) and pkg-config.")
set(CPACK_COMPONENT_LIBSPCCL-DEV_DEPENDS libspccl)
set(CPACK_DEBIAN_LIBSPCCL-DEV_PACKAGE_NAME libspccl-dev)
set(CPACK_DEBIAN_LIBSPCCL-DEV_PACKAGE_SECTION libdevel)

set(CPACK_COMPONENT_SPCCL-TOOLS_DESCRIPTION
    "Benchmarks and the example job of spccl\nspccl-perf measures collectives, the classifier trains on text.")
set(CPACK_COMPONENT_SPCCL-TOOLS_DEPENDS libspccl spccld)
set(CPACK_DEBIAN_SPCCL-TOOLS_PACKAGE_NAME spccl-tools)

string(REGEX MATCH "^[0-9]+" cuda_major "${CMAKE_CUDA_COMPILER_VERSION}")
string(JOIN "\n" CPACK_COMPONENT_SPCCL-DEVICE_DESCRIPTION
  "spccl's kernels for GPUs"
  "For the daemons of nodes with NVIDIA GPUs of compute capability 8.0 or later"
  "(A100, H100, B200 and their like). Needs a driver for CUDA ${cuda_major} or later, and"
  "nothing else of CUDA. spccld loads the kernels at its next start.")
# The daemon refuses those of another version. The driver comes in packages of many names, or in none.
set(CPACK_COMPONENT_SPCCL-DEVICE_DEPENDS spccld)
set(CPACK_DEBIAN_SPCCL-DEVICE_PACKAGE_NAME spccl-device)
set(CPACK_DEBIAN_SPCCL-DEVICE_PACKAGE_SUGGESTS "libcuda1, nvidia-persistenced")

# One archive of everything, under one folder that carries the name and version.
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_ARCHIVE_FILE_NAME spccl-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_FILE_NAME ${CPACK_ARCHIVE_FILE_NAME})
set(CPACK_INCLUDE_TOPLEVEL_DIRECTORY ON)
include(CPack)
