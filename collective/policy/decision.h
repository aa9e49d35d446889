// Why a frame travels in the format it has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "collective/phase.h"
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
  kModelSparse,        // compressed: threshold auto, and the cost model has that arrive first
  kModelDense,         // dense: threshold auto, and the cost model has that arrive first
  kLossy,              // compressed lossily, as was asked for
};
inline constexpr int kReasonCount = 13;

// Whether the send was compressed; empty where it was not this send that decided.
constexpr std::optional<bool> Compresses(Reason reason) {
  switch (reason) {
    case Reason::kFirst:
    case Reason::kKnownAbove:
    case Reason::kExtrapolatedAbove:
    case Reason::kModelSparse:
      return true;
    case Reason::kKnownBelow:
    case Reason::kExtrapolatedBelow:
    case Reason::kNoGain:
    case Reason::kModelDense:
      return false;
    case Reason::kCodecDense:
    case Reason::kOperationDense:
    case Reason::kEmpty:
    case Reason::kForwarded:
    case Reason::kLossy:
      break;
  }
  return std::nullopt;
}

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
                                                     "forwarded",
                                                     "model-sparse",
                                                     "model-dense",
                                                     "lossy"};
  return kNames[static_cast<int>(reason)];
}

enum class Link : uint8_t { kIntra = 0, kInter = 1 };  // within a node, between nodes
inline constexpr int kLinkCount = 2;

constexpr std::string_view NameOf(Link link) {
  return link == Link::kIntra ? "intra" : "inter";
}

// How most sends of the last operation of its kind went, by phase: the model keeps to that unless
// the other is faster by more than it can be wrong (SendPolicy::kHysteresis).
enum class Leaning : uint8_t { kNone = 0, kSparse, kDense };
using Habit = std::array<Leaning, kPhaseCount>;

// Of the decisions of an operation, by phase and reason: what two thirds of those that decided did.
Habit HabitOf(const std::array<std::array<uint64_t, kReasonCount>, kPhaseCount>& decisions);

// What a format takes: seconds, of an element or of a slice.
struct Forecast {
  Format format = Format::kDense;
  double encode_seconds = 0;  // of one thread
  double wire_seconds = 0;    // the link alone; 0 within a node
  double seconds = 0;         // until the receiver has it, as one of many that overlap
};

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
  // With count_first: how most such sends went last time. Where an estimate says that this one goes
  // likewise it need not be counted: what goes dense is not read once more, and encoding counts.
  Leaning usual = Leaning::kNone;
  Phase phase = Phase::kReduceScatter;
  // Of the slice, where the costs are known: the format that was chosen, and the fastest other.
  std::optional<Forecast> forecast = std::nullopt, runner_up = std::nullopt;
};

}  // namespace spccl::policy
