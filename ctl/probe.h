// What can only be known by trying it. Each attempt is bounded in time, and leaves nothing behind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace spccl::ctl {

// Who listens at a UNIX socket, by the kernel's word, also where it does not answer.
struct Listener {
  pid_t pid = 0;  // as this process sees it; 0: it is in another process namespace
  uid_t uid = 0;
};
// `type` is the socket's, SOCK_STREAM or SOCK_SEQPACKET.
// Unavailable: nobody does. PermissionDenied: we may not connect.
absl::StatusOr<Listener> ListenerOf(const std::string& path, int type);

// The client library of this machine, and whether it gets an answer from the daemon.
struct LibraryFacts {
  bool found = false;
  int version_code = 0;  // as spcclGetVersion has it
  bool reached = false;
  std::string error;  // why it was not, in its own words
};
// Loads it in a child process, which opens a session. Call while this process has one thread.
LibraryFacts TryClientLibrary(const std::string& runtime_dir, int64_t deadline_ns);

// The errors of the attempts; empty: it works.
struct KernelFacts {
  std::string memfd_seals, pidfd;
  std::string reads_own;   // /proc/self/mem
  bool collapses = false;  // a sealed memfd's pages into a huge one
};
KernelFacts TryKernel();

struct ClockFacts {
  int error = 0;  // of adjtimex; the rest is for 0 only
  bool synchronised = false;
  int64_t most_error_us = 0;  // the kernel's bound
};
ClockFacts AskClock();

struct GpuFacts {
  bool cuda = false, nccl = false;  // whether their libraries load
};
GpuFacts TryGpuLibraries();

}  // namespace spccl::ctl
