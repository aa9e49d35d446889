// A range of this process's memory that the daemon can be told of, and is then named by a buffer
// id.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/memory.h"
#include "base/unique_fd.h"
#include "client/session.h"

namespace spccl::client {

// Makes the pages of shared memory present now, as huge ones where the system lets it, so that the
// first operation does not pay for them and a full system is told here, not by a signal later.
// ResourceExhausted where it has no more. `data` begins a page.
absl::Status MakePresent(std::byte* data, size_t size_bytes);

// Owner of the mapping, if it is the library's, and of the registration with the daemon.
// Thread-safe.
class Region {
 public:
  // New zero-filled memory in a sealed memfd, page-aligned, with its pages present; size_bytes > 0,
  // rounded up to pages. ResourceExhausted where the system has no more.
  static absl::StatusOr<std::shared_ptr<Region>> Allocate(size_t size_bytes);
  // Ordinary memory of the program, which outlives the region; reached by cross-memory attach.
  static std::shared_ptr<Region> Borrow(void* data, size_t size_bytes);

  // Takes the registration back, if its session lives.
  ~Region();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  bool is_allocated() const { return memfd_.valid(); }
  bool Contains(const void* start, size_t bytes) const;

  // Copies of memory of this GPU (its UUID) pass through it: told to the daemon, for people. Before
  // the first BufferId.
  void SetStages(const char (&gpu)[shm::kGpuIdBytes]) {
    stages_gpu_ = true;
    std::memcpy(gpu_, gpu, sizeof gpu_);
  }

  // The daemon's name for this region in the session; registers it at the first call.
  absl::StatusOr<uint64_t> BufferId(const std::shared_ptr<Session>& session);

  // Unfinished operations that use the memory.
  void AddUse() { uses_.fetch_add(1, std::memory_order_relaxed); }
  // Release: what the operation did to the memory comes before whatever follows on in_use() false.
  void RemoveUse() { uses_.fetch_sub(1, std::memory_order_release); }
  bool in_use() const { return uses_.load(std::memory_order_acquire) != 0; }

  // Registrations by the program.
  void AddHandle() { handles_.fetch_add(1, std::memory_order_relaxed); }
  // The handles that are left.
  uint32_t RemoveHandle() { return handles_.fetch_sub(1, std::memory_order_relaxed) - 1; }
  uint32_t handles() const { return handles_.load(std::memory_order_relaxed); }

 private:
  Region(std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* const data_;
  const size_t size_bytes_;
  UniqueFd memfd_;
  SharedMapping mapping_;
  std::atomic<uint32_t> uses_{0};
  std::atomic<uint32_t> handles_{0};

  bool stages_gpu_ = false;
  uint8_t gpu_[shm::kGpuIdBytes] = {};

  std::mutex mutex_;
  std::weak_ptr<Session> session_;
  uint64_t buffer_id_ = 0;
};

}  // namespace spccl::client
