#include "client/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/status.h"

namespace spccl::client {
namespace {

constexpr size_t kLeastBytes = size_t{64} << 10;

}  // namespace

absl::StatusOr<std::shared_ptr<PinnedBuffer>> PinnedBuffer::Create(const cuda::Driver& driver,
                                                                   cuda::Context context,
                                                                   const cuda::Uuid& gpu,
                                                                   size_t bytes) {
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> region, Region::Allocate(bytes));
  region->SetStages(gpu.bytes);
  std::shared_ptr<PinnedBuffer> buffer(new PinnedBuffer(driver, context, std::move(region)));
  const cuda::ScopedContext current(driver, context);
  SPCCL_RETURN_IF_ERROR(current.status());
  SPCCL_RETURN_IF_ERROR(
      driver.ToStatus(driver.MemHostRegister(buffer->data(), buffer->region().size_bytes(),
                                             cuda::kMemHostRegisterPortable),
                      "registering a staging buffer"));
  buffer->registered_ = true;
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.EventCreate(&buffer->last_copy_, cuda::kEventDisableTiming), "cuEventCreate"));
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  if (last_copy_ != nullptr) (void)driver_.EventDestroy(last_copy_);
  if (registered_) (void)driver_.MemHostUnregister(data());
}

absl::Status PinnedBuffer::RecordLastCopy(cuda::Stream stream) {
  return driver_.ToStatus(driver_.EventRecord(last_copy_, stream), "cuEventRecord");
}

bool PinnedBuffer::AreCopiesDone() const {
  return driver_.EventQuery(last_copy_) == cuda::kSuccess;
}

absl::StatusOr<std::shared_ptr<PinnedBuffer>> PinnedPool::Take(const cuda::Driver& driver,
                                                               cuda::Context context,
                                                               const cuda::Uuid& gpu,
                                                               size_t bytes) {
  std::vector<std::shared_ptr<PinnedBuffer>> dropped;  // end after the lock
  const size_t rounded = std::bit_ceil(std::max(bytes, kLeastBytes));
  {
    const std::lock_guard lock(mutex_);
    size_t kept_bytes = 0;
    for (auto at = buffers_.begin(); at != buffers_.end();) {
      PinnedBuffer& buffer = **at;
      const bool lost = buffer.lost_.load(std::memory_order_acquire);
      const bool free = !lost && buffer.ended_.load(std::memory_order_acquire);
      // An operation may end, and be noticed by another thread, before the one that launches it has
      // recorded its last copy: until then that one holds the buffer, too. And who else holds it
      // may be where the driver must not be called, as its end would.
      if ((!lost && !free) || at->use_count() > 1 || !buffer.AreCopiesDone()) {
        ++at;
        continue;
      }
      const size_t held = buffer.region().size_bytes();
      if (free && buffer.context_ == context && held >= bytes && held / 4 <= rounded) {
        buffer.ended_.store(false, std::memory_order_relaxed);
        buffers_.splice(buffers_.begin(), buffers_, at);
        return buffers_.front();
      }
      kept_bytes += held;
      if (lost || kept_bytes > kKeptBytes) {
        dropped.push_back(std::move(*at));
        at = buffers_.erase(at);
      } else {
        ++at;
      }
    }
  }
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<PinnedBuffer> buffer,
                         PinnedBuffer::Create(driver, context, gpu, rounded));
  buffer->ended_.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  buffers_.push_front(buffer);
  return buffer;
}

}  // namespace spccl::client
