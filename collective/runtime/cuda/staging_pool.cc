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
  MakeRoom(most_bytes_);
}

absl::StatusOr<Frame> StagingPool::Take(size_t bytes) {
  const size_t capacity = std::bit_ceil(std::max(bytes, size_t{1} << kSmallest));
  const int size = std::countr_zero(capacity) - kSmallest;
  SPCCL_CHECK(size < kSizes);
  // Held while memory is made: that is rare, and two that need the last room must not both get it.
  const std::lock_guard lock(mutex_);
  Block* block = TakeKept(size, size);
  // To make room is to free memory, which waits for all that the GPU does: rather a larger one.
  if (block == nullptr && bytes_ + capacity > most_bytes_) block = TakeKept(size, kSizes - 1);
  if (block == nullptr) {
    SPCCL_ASSIGN_OR_RETURN(block, Make(capacity));
  }
  block->owners.store(1, std::memory_order_relaxed);  // nobody else knows it
  ++out_;
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

absl::StatusOr<StagingPool::Block*> StagingPool::Make(size_t capacity) {
  if (!MakeRoom(capacity)) {
    return absl::ResourceExhaustedError(absl::StrCat("staging: ", capacity, " bytes more than the ",
                                                     bytes_, " that are in use; ", most_bytes_,
                                                     " are the most"));
  }
  void* header = nullptr;
  if (source_.make_header && !headers_.empty()) {
    header = headers_.back();
    headers_.pop_back();
  } else if (source_.make_header) {
    SPCCL_ASSIGN_OR_RETURN(header, source_.make_header());
  }
  absl::StatusOr<std::byte*> memory = source_.make(capacity);
  if (!memory.ok()) {
    if (header != nullptr) headers_.push_back(header);
    return memory.status();
  }
  bytes_ += capacity;
  return new Block{.gpu = gpu_,
                   .home = this,
                   .data = *memory,
                   .capacity_bytes = capacity,
                   .header = header == nullptr ? *memory : header};
}

bool StagingPool::MakeRoom(size_t bytes) {
  for (int size = kSizes - 1; size >= 0 && bytes_ + bytes > most_bytes_; --size) {
    while (!free_[size].empty() && bytes_ + bytes > most_bytes_) {
      Block* const block = free_[size].back();
      free_[size].pop_back();
      bytes_ -= block->capacity_bytes;
      if (source_.make_header) headers_.push_back(block->header);
      source_.free(block->data);
      delete block;
    }
  }
  return bytes_ + bytes <= most_bytes_;
}

void StagingPool::Give(Block* block) {
  const std::lock_guard lock(mutex_);
  --out_;
  free_[std::countr_zero(block->capacity_bytes) - kSmallest].push_back(block);
}

size_t StagingPool::frames_out() const {
  const std::lock_guard lock(mutex_);
  return out_;
}

}  // namespace spccl::runtime
