// Why a frame travels in the format it has.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/format.h"

namespace spccl::policy {

enum class Reason : uint8_t {
  kCodecDense = 0,     // dense: the settings compress nothing
  kOperationDense,     // dense: the reduction's identity is not zero, or an integer average
  kEmpty,              // dense: no elements
  kFirst,              // compressed: step 0, which measures the density
  kKnownAbove,         // compressed: the sparsity is known and above the threshold
  kKnownBelow,         // dense: known, at or below
  kExtrapolatedAbove,  // compressed: extrapolated through dense sends, above
  kExtrapolatedBelow,  // dense: extrapolated, at or below
  kNoGain,             // dense: compressed, but the frame was no smaller
  kForwarded,          // as it came: an all-gather or a broadcast passes frames on
};
inline constexpr int kReasonCount = 10;

constexpr std::string_view NameOf(Reason reason) {
  constexpr std::string_view kNames[kReasonCount] = {"codec-dense",
                                                     "operation-dense",
                                                     "empty",
                                                     "first",
                                                     "known-above",
                                                     "known-below",
                                                     "extrapolated-above",
                                                     "extrapolated-below",
                                                     "no-gain",
                                                     "forwarded"};
  return kNames[static_cast<int>(reason)];
}

enum class Link : uint8_t { kIntra = 0, kInter = 1 };  // within a node, between nodes
inline constexpr int kLinkCount = 2;

constexpr std::string_view NameOf(Link link) {
  return link == Link::kIntra ? "intra" : "inter";
}

// The decision on one send.
struct Decision {
  Format format = Format::kDense;
  Reason reason = Reason::kCodecDense;
  Link link = Link::kIntra;
  // What was compared, where the reason is a comparison: sparsity > threshold compresses.
  double sparsity = 0;
  double threshold = 0;
  // Codec auto before step 0: count the slice, then ask SendPolicy::Choose. `format` is the one to
  // use where nobody counts.
  bool count_first = false;
};

}  // namespace spccl::policy
