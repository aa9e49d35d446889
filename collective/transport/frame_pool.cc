#include "collective/transport/frame_pool.h"

#include <bit>
#include <cstdlib>
#include <new>

#include "base/status.h"

namespace spccl::transport {

Frame::~Frame() {
  if (data_ != nullptr) pool_->Give(data_, capacity_bytes_);
}

FramePool::~FramePool() {
  for (const std::vector<std::byte*>& buffers : free_) {
    for (std::byte* buffer : buffers) std::free(buffer);
  }
}

FramePool& FramePool::Shared() {
  static FramePool pool(size_t{64} << 20);
  return pool;
}

Frame FramePool::Take(size_t bytes) {
  SPCCL_CHECK(bytes <= kLargestFrame);
  const size_t capacity = std::bit_ceil(std::max(bytes, size_t{1} << kSmallest));
  std::vector<std::byte*>& buffers = free_[std::countr_zero(capacity) - kSmallest];
  {
    const std::lock_guard lock(mutex_);
    if (!buffers.empty()) {
      std::byte* data = buffers.back();
      buffers.pop_back();
      kept_bytes_ -= capacity;
      return Frame(this, data, capacity);
    }
  }
  auto* data = static_cast<std::byte*>(std::aligned_alloc(64, capacity));
  if (data == nullptr) throw std::bad_alloc();
  return Frame(this, data, capacity);
}

void FramePool::Give(std::byte* data, size_t capacity_bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (kept_bytes_ + capacity_bytes <= keep_bytes_) {
      free_[std::countr_zero(capacity_bytes) - kSmallest].push_back(data);
      kept_bytes_ += capacity_bytes;
      return;
    }
  }
  std::free(data);
}

size_t FramePool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace spccl::transport
