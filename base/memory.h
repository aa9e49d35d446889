// Memory shared between processes: sealed memfds and their mappings.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "boost/interprocess/mapped_region.hpp"

namespace spccl {

// A memfd of `size_bytes`, zero-filled, sealed against shrinking, growing and more seals.
absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, size_t size_bytes);

// Checks a descriptor that another process passed: it must be a memfd that can no longer shrink (so
// that no access through a mapping can fault) and must hold at least `least_bytes`. Returns its
// size.
absl::StatusOr<size_t> CheckSealedMemfd(int fd, size_t least_bytes);

// Checks that memory is mapped in every page of [data, data + size_bytes), in whatever way; a range
// that wraps round is none. InvalidArgument: somewhere it is not.
absl::Status CheckMapped(const void* data, size_t size_bytes);

// Owner of a shared read-write mapping of a descriptor. Movable.
class SharedMapping {
 public:
  SharedMapping() = default;
  // Maps the first `size_bytes` of `fd`; size_bytes > 0. The descriptor may be closed afterwards.
  static absl::StatusOr<SharedMapping> Create(int fd, size_t size_bytes);

  std::byte* data() const { return static_cast<std::byte*>(region_.get_address()); }
  size_t size_bytes() const { return region_.get_size(); }

 private:
  explicit SharedMapping(boost::interprocess::mapped_region region) : region_(std::move(region)) {}
  boost::interprocess::mapped_region region_;
};

}  // namespace spccl
