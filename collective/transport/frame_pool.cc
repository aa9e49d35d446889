#include "collective/transport/frame_pool.h"

#include <bit>
#include <cstdlib>
#include <new>

#include "base/clock.h"
#include "base/status.h"

namespace spccl::transport {

void BusyMeter::Begin() {
  const std::lock_guard lock(mutex_);
  if (open_++ == 0) since_ns_ = MonotonicNanos();
}

void BusyMeter::End() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0) busy_ns_ += static_cast<uint64_t>(MonotonicNanos() - since_ns_);
}

uint64_t BusyMeter::busy_ns() const {
  const std::lock_guard lock(mutex_);
  return busy_ns_ + (open_ == 0 ? 0 : static_cast<uint64_t>(MonotonicNanos() - since_ns_));
}

Frame::~Frame() {
  if (meter_) meter_->End();
  if (data_ == nullptr) return;
  // Acquire and release: what the others read is read before the buffer goes to its next user.
  if (owners()->count.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    pool_->Give(data_, capacity_bytes_);
  }
}

Frame Frame::Share() const {
  // Relaxed: whoever gets the other owner gets it by way of something that orders more.
  owners()->count.fetch_add(1, std::memory_order_relaxed);
  Frame other(pool_, data_, capacity_bytes_);
  other.size_bytes_ = size_bytes_;
  return other;
}

bool Frame::unique() const {
  // Acquire: what former owners read comes before what this one writes.
  return owners()->count.load(std::memory_order_acquire) == 1;
}

FramePool::~FramePool() {
  Trim();
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
      Frame frame(this, data, capacity);
      frame.owners()->count.store(1, std::memory_order_relaxed);  // nobody else knows it
      return frame;
    }
  }
  auto* block = static_cast<std::byte*>(std::aligned_alloc(Frame::kLine, Frame::kLine + capacity));
  if (block == nullptr) throw std::bad_alloc();
  new (block) Frame::Owners{1};
  return Frame(this, block + Frame::kLine, capacity);
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
  std::free(data - Frame::kLine);
}

void FramePool::Trim() {
  decltype(free_) taken;
  {
    const std::lock_guard lock(mutex_);
    std::swap(taken, free_);
    kept_bytes_ = 0;
  }
  for (const std::vector<std::byte*>& buffers : taken) {
    for (std::byte* buffer : buffers) std::free(buffer - Frame::kLine);
  }
}

size_t FramePool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace spccl::transport
