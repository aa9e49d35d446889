// What can be checked of a rank's wish to join, whether it comes from a session or another node.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/policy/settings.h"

namespace spccl::daemon {

// The wishes of a caller's environment; empty texts wish nothing.
absl::StatusOr<policy::Overrides> WishesOf(std::string_view algorithm, std::string_view codec);

// Puts a wish for lossy sends, as policy/lossy.h has it in text, into the overrides; "" wishes
// nothing. InvalidArgument says what is wrong.
absl::Status SetLossy(std::string_view text, policy::Overrides* overrides);

// `most`: ranks that a communicator may have.
absl::Status CheckRank(uint32_t rank, uint32_t ranks, uint64_t most);

}  // namespace spccl::daemon
