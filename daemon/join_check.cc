#include "daemon/join_check.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace spccl::daemon {

absl::StatusOr<policy::Overrides> WishesOf(std::string_view algorithm, std::string_view codec) {
  policy::Overrides wishes;
  if (!algorithm.empty()) {
    wishes.algorithm = policy::AlgorithmFromName(algorithm);
    if (!wishes.algorithm) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown algorithm: ", std::string(algorithm)));
    }
  }
  if (!codec.empty()) {
    wishes.codec = policy::CodecFromName(codec);
    if (!wishes.codec) {
      return absl::InvalidArgumentError(absl::StrCat("unknown codec: ", std::string(codec)));
    }
  }
  return wishes;
}

absl::Status SetLossy(std::string_view text, policy::Overrides* overrides) {
  if (text.empty()) return absl::OkStatus();
  std::string complaint;
  overrides->lossy = policy::LossyFromText(text, &complaint);
  if (overrides->lossy.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("lossy: ", complaint));
}

absl::Status CheckRank(uint32_t rank, uint32_t ranks, uint64_t most) {
  if (ranks == 0 || ranks > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("a communicator of ", ranks, " ranks: 1 to ", most, " are possible"));
  }
  if (rank >= ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", ranks));
  }
  return absl::OkStatus();
}

}  // namespace spccl::daemon
