// A process's memory, as the process itself would hand it over: for tests that may reach it.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "collective/runtime/process_memory.h"

namespace spccl::testing {

// What is beside a request to hand over memory. Invalid where the process may not be reached.
inline std::array<UniqueFd, 2> MemoryDescriptors(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  return {UniqueFd(::open((folder + "/mem").c_str(), O_RDWR | O_CLOEXEC)),
          UniqueFd(::open((folder + "/maps").c_str(), O_RDONLY | O_CLOEXEC))};
}

inline absl::StatusOr<std::shared_ptr<const runtime::ProcessMemory>> TakeMemory(pid_t pid) {
  auto fds = MemoryDescriptors(pid);
  return runtime::ProcessMemory::Take(pid, fds);
}

// This very process's, as if it were another's.
inline const runtime::ProcessMemory* OwnMemory() {
  static const auto memory = TakeMemory(::getpid()).value();
  return memory.get();
}

}  // namespace spccl::testing
