#include "client/memory.h"

#include <bit>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::client {
namespace {

constexpr size_t kLeastStagingBytes = size_t{64} << 10;

std::string Named(const void* address) {
  return absl::StrCat("0x", absl::Hex(reinterpret_cast<uintptr_t>(address)));
}

}  // namespace

absl::StatusOr<void*> MemoryTable::Allocate(size_t size_bytes) {
  if (size_bytes == 0) return static_cast<void*>(nullptr);
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> region, Region::Allocate(size_bytes));
  void* data = region->data();
  const std::lock_guard lock(mutex_);
  allocated_.emplace(reinterpret_cast<uintptr_t>(data), std::move(region));
  return data;
}

absl::Status MemoryTable::Free(void* data) {
  if (data == nullptr) return absl::OkStatus();
  std::shared_ptr<Region> region;  // outlives the lock: its end may talk to the daemon
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(reinterpret_cast<uintptr_t>(data));
  if (found == allocated_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Named(data), " is not what spcclMemAlloc gave this process"));
  }
  if (found->second->in_use()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Named(data), " is used by an operation that has not ended"));
  }
  if (const uint32_t handles = found->second->handles(); handles != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(Named(data), " is still registered, ", handles, " times"));
  }
  region = std::move(found->second);
  allocated_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Region>> MemoryTable::Register(void* data, size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> region, FindLocked(data, size_bytes));
  const bool is_known =
      region != nullptr &&
      (region->is_allocated() || (region->data() == data && region->size_bytes() == size_bytes));
  if (!is_known) {
    region = Region::Borrow(data, size_bytes);
    auto& kept = registered_[reinterpret_cast<uintptr_t>(data)];
    if (kept == nullptr || kept->size_bytes() < size_bytes) kept = region;
  }
  region->AddHandle();
  return region;
}

absl::Status MemoryTable::Deregister(const std::shared_ptr<Region>& region) {
  std::shared_ptr<Region> last;  // outlives the lock: its end may talk to the daemon
  const std::lock_guard lock(mutex_);
  if (region->in_use()) {
    return absl::FailedPreconditionError("an operation that uses the memory has not ended");
  }
  if (region->RemoveHandle() != 0 || region->is_allocated()) return absl::OkStatus();
  const auto found = registered_.find(reinterpret_cast<uintptr_t>(region->data()));
  if (found != registered_.end() && found->second == region) {
    last = std::move(found->second);
    registered_.erase(found);
  }
  return absl::OkStatus();
}

std::shared_ptr<Region> MemoryTable::Below(const Regions& regions, const void* start) {
  auto next = regions.upper_bound(reinterpret_cast<uintptr_t>(start));
  return next == regions.begin() ? nullptr : std::prev(next)->second;
}

absl::StatusOr<std::shared_ptr<Region>> MemoryTable::FindLocked(const void* start,
                                                                size_t bytes) const {
  if (const auto region = Below(allocated_, start);
      region != nullptr && region->Contains(start, 1)) {
    if (region->Contains(start, bytes)) return region;
    const auto* end = region->data() + region->size_bytes();
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes from ", Named(start),
                     " run past the end of their spcclMemAlloc allocation, ", Named(end)));
  }
  const auto region = Below(registered_, start);
  if (region != nullptr && region->Contains(start, bytes)) return region;
  return std::shared_ptr<Region>();
}

absl::StatusOr<std::shared_ptr<Region>> MemoryTable::Find(const void* start, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return FindLocked(start, bytes);
}

absl::StatusOr<std::shared_ptr<Region>> StagingPool::Take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    // Not a buffer that is needlessly large: another operation may need it.
    const auto fit = free_.lower_bound(bytes);
    if (fit != free_.end() && fit->first / 4 <= std::max(bytes, kLeastStagingBytes)) {
      std::shared_ptr<Region> region = std::move(fit->second);
      kept_bytes_ -= fit->first;
      free_.erase(fit);
      return region;
    }
  }
  // Sizes in powers of two are reused more often; above what is kept there is nothing to reuse.
  const size_t rounded =
      bytes > kKeptBytes ? bytes : std::bit_ceil(std::max(bytes, kLeastStagingBytes));
  return Region::Allocate(rounded);
}

void StagingPool::GiveBack(std::shared_ptr<Region> region) noexcept {
  const std::lock_guard lock(mutex_);
  const size_t bytes = region->size_bytes();
  if (bytes > kKeptBytes - kept_bytes_) return;  // freed by the caller's reference
  try {
    free_.emplace(bytes, region);
  } catch (const std::bad_alloc&) {
    return;  // likewise
  }
  kept_bytes_ += bytes;
}

size_t StagingPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace spccl::client
