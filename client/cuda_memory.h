// What the driver says of pointers to a GPU's memory, and how that memory is exported. The one
// place of the library that finds the driver; a program that uses no GPU never gets further.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "base/unique_fd.h"
#include "proto/shm/session.h"

namespace spccl::client {

// An allocation, or a piece of one that was mapped piece by piece.
struct DeviceMemory {
  uint64_t base = 0;
  uint64_t size_bytes = 0;
  uint64_t buffer_id = 0;  // the driver's: no other memory of this process has or had it
  int device = 0;          // an ordinal
  cuda::Uuid gpu{};
  bool ipc_capable = false;  // by a legacy handle
  bool fd_capable = false;   // by a POSIX descriptor

  bool Contains(uint64_t address, uint64_t bytes) const {
    return address >= base && address - base <= size_bytes &&
           bytes <= size_bytes - (address - base);
  }
};

// What the daemon is given of memory.
struct CudaExport {
  shm::CudaHandleKind kind;
  uint64_t base = 0, size_bytes = 0;
  std::vector<DeviceMemory> pieces;  // in a row
  cuda::IpcMemHandle handle{};
  std::vector<UniqueFd> descriptors;  // one a piece
};

// Thread-safe.
class CudaMemory {
 public:
  // Looks whether the program uses a GPU by now, at calls that take long anyway. An InvalidArgument
  // where SPCCL_CUDA_LIBRARY names no CUDA driver, or one that is too old.
  absl::Status Look();
  // Null: the program uses none, as far as is known. One atomic load.
  const cuda::Driver* driver() const { return driver_.load(std::memory_order_acquire); }

  // The memory at the pointer; null: it is the host's (managed memory and registered host memory
  // are).
  absl::StatusOr<std::shared_ptr<const DeviceMemory>> Find(const void* data);

  // The piece that follows in a row; null: there is none on the same GPU.
  absl::StatusOr<std::shared_ptr<const DeviceMemory>> Next(const DeviceMemory& piece);
  // An InvalidArgument if [address, address + bytes), which begins in `first`, runs past the end of
  // the memory that is there.
  absl::Status CheckRange(const std::shared_ptr<const DeviceMemory>& first, uint64_t address,
                          uint64_t bytes);
  // Exports the range, which CheckRange has passed: whole pieces. Unimplemented, with
  // the reason: it cannot be exported, and has to be copied.
  absl::StatusOr<CudaExport> Export(const DeviceMemory& first, uint64_t address, uint64_t bytes);
  // Whether the memory that was once found is still there, and no other at its place.
  bool IsStill(const DeviceMemory& memory) const;

  // A GPU's primary context, which the runtime API's programs use too; kept.
  absl::StatusOr<cuda::Context> ContextOf(int device);

 private:
  absl::StatusOr<cuda::Context> ContextOfLocked(int device);
  // The driver's answers, all of them.
  absl::StatusOr<std::shared_ptr<const DeviceMemory>> QueryLocked(uint64_t address,
                                                                  uint64_t buffer_id);

  std::atomic<const cuda::Driver*> driver_{nullptr};
  std::mutex mutex_;
  std::shared_ptr<const cuda::Driver> loaded_;
  // By buffer id; null: the host's.
  std::unordered_map<uint64_t, std::shared_ptr<const DeviceMemory>> known_;
  std::unordered_map<int, cuda::Context> contexts_;
};

}  // namespace spccl::client
