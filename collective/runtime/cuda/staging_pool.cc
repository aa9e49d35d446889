#include "collective/runtime/cuda/staging_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::runtime {

using transport::Frame;

StagingPool::StagingPool(int gpu, size_t most_bytes, Source source)
    : gpu_(gpu), most_bytes_(most_bytes), source_(std::move(source)) {}

StagingPool::~StagingPool() {
  SPCCL_CHECK(out_ == 0);
  for (const std::vector<Block*>& blocks : free_) FreeAll(blocks);
  FreeAll(lost_);
}

absl::StatusOr<Frame> StagingPool::Take(size_t bytes) {
  const size_t capacity = std::bit_ceil(std::max(bytes, size_t{1} << kSmallest));
  const int size = std::countr_zero(capacity) - kSmallest;
  SPCCL_CHECK(size < kSizes);
  Lock lock(mutex_);
  Block* block = TakeKept(size, size);
  // To make room is to free memory, which waits for all that the GPU does: rather a larger one.
  if (block == nullptr && bytes_ + capacity > most_bytes_) block = TakeKept(size, kSizes - 1);
  if (block == nullptr) {
    absl::StatusOr<Block*> made = Make(&lock, capacity);
    // Others may have taken what the device has, too.
    block = made.ok() ? *made : TakeKept(size, kSizes - 1);
    if (block == nullptr) return made.status();
  }
  return Out(block);
}

absl::StatusOr<Frame> StagingPool::TakeSpare(size_t bytes, bool make) {
  const size_t capacity = std::bit_ceil(std::max(bytes, size_t{1} << kSmallest));
  const int size = std::countr_zero(capacity) - kSmallest;
  SPCCL_CHECK(size < kSizes);
  Lock lock(mutex_);
  if (out_bytes_ + capacity > most_bytes_ / 2) {
    return absl::ResourceExhaustedError("staging: half of it is in use");
  }
  if (Block* const kept = TakeKept(size, size); kept != nullptr) return Out(kept);
  if (!make || bytes_ + capacity > most_bytes_ / 2) {
    return absl::ResourceExhaustedError("staging: none of that size is kept");
  }
  SPCCL_ASSIGN_OR_RETURN(Block* const made, Make(&lock, capacity));
  return Out(made);
}

Frame StagingPool::Out(Block* block) {
  block->owners.store(1, std::memory_order_relaxed);  // nobody else knows it
  ++out_;
  out_bytes_ += block->capacity_bytes;
  return Frame(block);
}

StagingPool::Block* StagingPool::TakeKept(int size, int largest) {
  for (; size <= largest; ++size) {
    if (free_[size].empty()) continue;
    Block* const block = free_[size].back();
    free_[size].pop_back();
    return block;
  }
  return nullptr;
}

// Memory is made and freed without the lock: either may wait for the device, and who gives a frame
// back must not. What two need of the last room is in bytes_ before.
absl::StatusOr<StagingPool::Block*> StagingPool::Make(Lock* lock, size_t capacity) {
  std::vector<Block*> freed;
  if (!MakeRoom(capacity, &freed)) {
    return absl::ResourceExhaustedError(absl::StrCat("staging: ", capacity, " bytes more than the ",
                                                     bytes_, " that are in use; ", most_bytes_,
                                                     " are the most"));
  }
  bytes_ += capacity;
  void* header = nullptr;
  if (!headers_.empty()) {
    header = headers_.back();
    headers_.pop_back();
  }
  lock->unlock();
  FreeAll(freed);
  absl::Status status;
  if (source_.make_header && header == nullptr) {
    absl::StatusOr<void*> made = source_.make_header();
    if (made.ok()) header = *made;
    status = made.status();
  }
  absl::StatusOr<std::byte*> memory = nullptr;
  if (status.ok()) {
    memory = source_.make(capacity);
    status = memory.status();
  }
  lock->lock();
  if (!status.ok()) {
    bytes_ -= capacity;
    if (header != nullptr) headers_.push_back(header);
    return status;
  }
  return new Block{.gpu = gpu_,
                   .home = this,
                   .data = *memory,
                   .capacity_bytes = capacity,
                   .header = header == nullptr ? *memory : header};
}

bool StagingPool::MakeRoom(size_t bytes, std::vector<Block*>* freed) {
  if (bytes_ + bytes <= most_bytes_) return true;
  size_t kept = 0;
  for (const std::vector<Block*>& blocks : free_) {
    for (const Block* const block : blocks) kept += block->capacity_bytes;
  }
  if (bytes_ - kept + bytes > most_bytes_) return false;
  if (source_.may_free && !source_.may_free()) return false;
  for (int size = kSizes - 1; size >= 0; --size) {
    while (!free_[size].empty() && bytes_ + bytes > most_bytes_) {
      Block* const block = free_[size].back();
      free_[size].pop_back();
      bytes_ -= block->capacity_bytes;
      if (source_.make_header) headers_.push_back(block->header);
      freed->push_back(block);
    }
  }
  return true;
}

void StagingPool::FreeAll(const std::vector<Block*>& blocks) {
  for (Block* const block : blocks) {
    source_.free(block->data);
    delete block;
  }
}

void StagingPool::Give(Block* block) {
  const std::lock_guard lock(mutex_);
  --out_;
  out_bytes_ -= block->capacity_bytes;
  if (block->lost) return lost_.push_back(block);
  free_[std::countr_zero(block->capacity_bytes) - kSmallest].push_back(block);
}

size_t StagingPool::frames_out() const {
  const std::lock_guard lock(mutex_);
  return out_;
}

}  // namespace spccl::runtime
