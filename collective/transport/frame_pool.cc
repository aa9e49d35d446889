#include "collective/transport/frame_pool.h"

#include <algorithm>
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
  if (block_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) block_->home->Give(block_);
}

Frame Frame::Share() const {
  // Relaxed: whoever gets the other owner gets it by way of something that orders more.
  block_->owners.fetch_add(1, std::memory_order_relaxed);
  Frame other(block_);
  other.size_bytes_ = size_bytes_;
  return other;
}

bool Frame::unique() const {
  // Acquire: what former owners read comes before what this one writes.
  return block_->owners.load(std::memory_order_acquire) == 1;
}

namespace {

// A block lies in front of its bytes, in a line of its own.
constexpr size_t kLine = 64;
static_assert(sizeof(FrameBlock) <= kLine);

}  // namespace

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
  std::vector<FrameBlock*>& blocks = free_[std::countr_zero(capacity) - kSmallest];
  {
    const std::lock_guard lock(mutex_);
    if (!blocks.empty()) {
      FrameBlock* const block = blocks.back();
      blocks.pop_back();
      kept_bytes_ -= capacity;
      block->owners.store(1, std::memory_order_relaxed);  // nobody else knows it
      return Frame(block);
    }
  }
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kLine, kLine + capacity));
  if (memory == nullptr) throw std::bad_alloc();
  return Frame(new (memory) FrameBlock{
      .home = this, .data = memory + kLine, .capacity_bytes = capacity, .header = memory + kLine});
}

void FramePool::Give(FrameBlock* block) {
  const size_t capacity = block->capacity_bytes;
  {
    const std::lock_guard lock(mutex_);
    if (kept_bytes_ + capacity <= keep_bytes_) {
      free_[std::countr_zero(capacity) - kSmallest].push_back(block);
      kept_bytes_ += capacity;
      return;
    }
  }
  std::free(block);
}

void FramePool::Trim() {
  decltype(free_) taken;
  {
    const std::lock_guard lock(mutex_);
    std::swap(taken, free_);
    kept_bytes_ = 0;
  }
  for (const std::vector<FrameBlock*>& blocks : taken) {
    for (FrameBlock* block : blocks) std::free(block);
  }
}

size_t FramePool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace spccl::transport
