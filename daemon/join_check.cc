#include "daemon/join_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/view.h"

namespace spccl::daemon {
namespace {

// `Name`: an enumeration whose codes are 0 to count - 1. `variable`: where the client has it from.
template <typename Name>
absl::Status Unknown(std::string_view what, std::string_view value, std::string_view variable,
                     int count) {
  std::string known;
  for (int code = 0; code < count; ++code) {
    absl::StrAppend(&known, code == 0 ? "" : ", ", View(policy::NameOf(static_cast<Name>(code))));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown ", View(what), " \"", View(value), "\" (",
                                                 View(variable), "): there are ", known));
}

}  // namespace

absl::StatusOr<policy::Overrides> WishesOf(std::string_view algorithm, std::string_view codec) {
  policy::Overrides wishes;
  if (!algorithm.empty()) {
    wishes.algorithm = policy::AlgorithmFromName(algorithm);
    if (!wishes.algorithm) {
      return Unknown<policy::Algorithm>("algorithm", algorithm, "SPCCL_ALGO",
                                        policy::kAlgorithmCount);
    }
  }
  if (!codec.empty()) {
    wishes.codec = policy::CodecFromName(codec);
    if (!wishes.codec) {
      return Unknown<policy::Codec>("codec", codec, "SPCCL_CODEC", policy::kCodecCount);
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
