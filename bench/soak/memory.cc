#include "bench/soak/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace spccl::bench {
namespace {

constexpr size_t kGuard = 64;
constexpr size_t kMostShift = 64;
constexpr size_t kMostKept = 6;
constexpr std::byte kFill{0xA5};  // of guards, and of what nobody has written yet

size_t BlockBytes(size_t bytes) {
  return bytes + 2 * kGuard + kMostShift;
}

}  // namespace

bool SoakMemory::Make(size_t bytes) {
  constexpr Kind kKinds[] = {Kind::kShared,   Kind::kShared,   Kind::kRegistered,
                             Kind::kOrdinary, Kind::kOrdinary, Kind::kOrdinary};
  Block block{.kind = dice_.Of<Kind>(kKinds), .bytes = bytes};
  if (block.kind == Kind::kShared) {
    void* data = nullptr;
    if (!failure_->Ok(spcclMemAlloc(&data, bytes), "spcclMemAlloc", nullptr)) return false;
    block.base = static_cast<std::byte*>(data);
  } else {
    block.base = static_cast<std::byte*>(std::malloc(bytes));
    if (block.base == nullptr) return failure_->Fail("malloc", "no memory");
  }
  taken_.push_front(block);
  if (block.kind != Kind::kRegistered) return true;
  std::memset(block.base, 0, bytes);  // so that its pages are there
  return failure_->Ok(spcclCommRegister(registrar_, block.base, bytes, &taken_.front().handle),
                      "spcclCommRegister", registrar_);
}

bool SoakMemory::Take(size_t bytes, size_t alignment, Region* region) {
  const size_t needed = BlockBytes(bytes);
  const auto fits = std::find_if(kept_.begin(), kept_.end(), [needed](const Block& block) {
    return block.bytes >= needed && block.bytes / 4 <= needed;
  });
  if (fits != kept_.end() && dice_.Percent(70)) {
    taken_.splice(taken_.begin(), kept_, fits);
  } else if (!Make(needed)) {
    return false;
  }
  const size_t shift = dice_.Below(kMostShift / alignment) * alignment;
  region->block = taken_.begin();
  region->data = region->block->base + kGuard + shift;
  region->bytes = bytes;
  std::memset(region->data - kGuard, static_cast<int>(kFill), bytes + 2 * kGuard);
  return true;
}

bool SoakMemory::Guarded(const Region& region) {
  const auto whole = [](const std::byte* guard) {
    return std::all_of(guard, guard + kGuard, [](std::byte byte) { return byte == kFill; });
  };
  return whole(region.data - kGuard) && whole(region.data + region.bytes);
}

bool SoakMemory::Give(const Region& region) {
  const bool keeps = kept_.size() < kMostKept && dice_.Percent(60);
  kept_.splice(kept_.begin(), taken_, region.block);
  if (keeps) return true;
  // The oldest rather than this one, so that none stays for good.
  const bool freed = Free(kept_.back());
  kept_.pop_back();
  return freed;
}

bool SoakMemory::Free(Block& block) {
  if (block.kind == Kind::kShared) {
    return failure_->Ok(spcclMemFree(block.base), "spcclMemFree", nullptr);
  }
  bool taken_back = true;
  if (block.handle != nullptr && registrar_ != nullptr) {
    taken_back = failure_->Ok(spcclCommDeregister(registrar_, block.handle), "spcclCommDeregister",
                              registrar_);
  }
  std::free(block.base);
  return taken_back;
}

bool SoakMemory::Clear() {
  bool freed = true;
  for (std::list<Block>* blocks : {&taken_, &kept_}) {
    for (Block& block : *blocks) freed = Free(block) && freed;
    blocks->clear();
  }
  return freed;
}

}  // namespace spccl::bench
