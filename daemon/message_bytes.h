// The fixed-size byte fields of messages between daemons.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/unique_ids.h"

namespace spccl::daemon {

inline std::string BytesOf(const CommKey& key) {
  return std::string(key.begin(), key.end());
}

// `what`: for the error, which says how many bytes were found.
template <size_t N>
absl::StatusOr<std::array<uint8_t, N>> ArrayOf(const std::string& bytes, const char* what) {
  std::array<uint8_t, N> array;
  if (bytes.size() != N) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of ", bytes.size(), " bytes instead of ", N));
  }
  std::copy(bytes.begin(), bytes.end(), array.begin());
  return array;
}

}  // namespace spccl::daemon
