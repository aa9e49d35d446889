// The memory of another process, as that process was when this was opened.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "collective/runtime/process_maps.h"

namespace spccl::runtime {

// The process hands it over itself, as descriptors of its /proc/self/mem and /proc/self/maps: so it
// takes no rights to reach it, and it is an address space, not a process id. A process that has run
// another program since (one with more rights than its user has, perhaps), or a stranger with the
// same id, is out of reach. Thread-safe.
class ProcessMemory {
 public:
  // `fds`: of process `pid`'s /proc/PID/mem, opened to read and write, and /proc/PID/maps, as the
  // /proc of this process shows them. Takes these two; else an error, and leaves them. Asks no
  // file system that might not answer, whatever they are.
  static absl::StatusOr<std::shared_ptr<const ProcessMemory>> Take(pid_t pid,
                                                                   std::span<UniqueFd> fds);

  // A range that is not there, or that the process itself may not read or write, is an
  // InvalidArgument with the address; NotFound if the memory is gone.
  absl::Status Read(uint64_t address, void* destination, size_t bytes) const;
  absl::Status Write(uint64_t address, const void* source, size_t bytes) const;

 private:
  ProcessMemory(pid_t pid, UniqueFd memory, UniqueFd maps)
      : pid_(pid), memory_(std::move(memory)), maps_(std::move(maps)) {}

  absl::Status Move(Access access, uint64_t address, void* local, size_t bytes) const;
  // The transfer itself would not mind a mapping's rights, like a debugger's.
  Allowance Allowed(Access access, uint64_t address, size_t bytes) const;

  pid_t pid_;  // for messages
  UniqueFd memory_, maps_;
  // What the text of the maps has said of a buffer, for a moment.
  struct Known {
    AddressRange range;
    int64_t since_ns = 0;
  };
  mutable std::mutex reading_maps_;
  mutable std::array<Known, 2> known_;  // by access
};

}  // namespace spccl::runtime
