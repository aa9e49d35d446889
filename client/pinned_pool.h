// Buffers through which memory of a GPU is copied that the daemon cannot be given: shared with the
// daemon, and registered with the driver so that streams copy by themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "client/region.h"

namespace spccl::client {

// Belongs to one operation at a time.
class PinnedBuffer {
 public:
  // New memory, registered in `context`; `gpu`: whose memory is copied, for people.
  static absl::StatusOr<std::shared_ptr<PinnedBuffer>> Create(const cuda::Driver& driver,
                                                              cuda::Context context,
                                                              const cuda::Uuid& gpu, size_t bytes);
  // Calls the driver: not in its callbacks.
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  Region& region() { return *region_; }
  std::byte* data() const { return region_->data(); }
  uint64_t pointer() const { return reinterpret_cast<uint64_t>(data()); }

  // After the last copy of the operation.
  absl::Status RecordLastCopy(cuda::Stream stream);
  bool AreCopiesDone() const;
  // The operation has ended: `daemon_let_go` if nothing of the daemon touches it any more. Waits
  // for nothing and calls no driver.
  void NoteEnd(bool daemon_let_go) {
    (daemon_let_go ? ended_ : lost_).store(true, std::memory_order_release);
  }

 private:
  friend class PinnedPool;
  PinnedBuffer(const cuda::Driver& driver, cuda::Context context, std::shared_ptr<Region> region)
      : driver_(driver), context_(context), region_(std::move(region)) {}

  const cuda::Driver& driver_;
  const cuda::Context context_;  // of the event, and so of the streams that copy
  const std::shared_ptr<Region> region_;
  cuda::Event last_copy_ = nullptr;
  bool registered_ = false;
  std::atomic<bool> ended_{true};
  std::atomic<bool> lost_{false};
};

// Thread-safe.
class PinnedPool {
 public:
  // What is kept for later use, at most.
  static constexpr size_t kKeptBytes = size_t{1} << 30;

  // To be given back by NoteEnd. Whoever enqueues copies holds it until the last is recorded.
  absl::StatusOr<std::shared_ptr<PinnedBuffer>> Take(const cuda::Driver& driver,
                                                     cuda::Context context, const cuda::Uuid& gpu,
                                                     size_t bytes);

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<PinnedBuffer>> buffers_;  // all, the last taken first
};

}  // namespace spccl::client
