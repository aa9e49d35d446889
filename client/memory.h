// What the library knows of this process's memory: what it allocated, what the program registered,
// and buffers of its own for copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/region.h"

namespace spccl::client {

// Thread-safe.
class MemoryTable {
 public:
  // spcclMemAlloc and spcclMemFree.
  absl::StatusOr<void*> Allocate(size_t size_bytes);
  absl::Status Free(void* data);

  // Takes up ordinary memory that the program registers; the same range twice is one region. Counts
  // a handle; so does registering part of an allocation, which gives the allocation.
  absl::StatusOr<std::shared_ptr<Region>> Register(void* data, size_t size_bytes);
  // Gives one handle back; forgets ordinary memory with its last.
  absl::Status Deregister(const std::shared_ptr<Region>& region);

  // The region that holds [start, start + bytes); null if nothing is known of it. A range that
  // begins inside an allocation and runs past its end is an InvalidArgument.
  absl::StatusOr<std::shared_ptr<Region>> Find(const void* start, size_t bytes) const;

 private:
  using Regions = std::map<uintptr_t, std::shared_ptr<Region>>;
  static std::shared_ptr<Region> Below(const Regions& regions, const void* start);
  absl::StatusOr<std::shared_ptr<Region>> FindLocked(const void* start, size_t bytes) const;

  mutable std::mutex mutex_;
  Regions allocated_;   // by first byte; disjoint
  Regions registered_;  // by first byte; of two that begin alike, the longer is kept here
};

// Buffers for copies of memory that the daemon cannot reach. Thread-safe.
class StagingPool {
 public:
  // What is kept for later use, at most; beyond that, buffers are freed after use.
  static constexpr size_t kKeptBytes = size_t{256} << 20;

  // A buffer of at least `bytes` > 0.
  absl::StatusOr<std::shared_ptr<Region>> Take(size_t bytes);
  void GiveBack(std::shared_ptr<Region> region) noexcept;
  size_t kept_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::multimap<size_t, std::shared_ptr<Region>> free_;  // by size
  size_t kept_bytes_ = 0;
};

}  // namespace spccl::client
