// Decides, send by send, whether a participant compresses, and into which format. Pure; no clock,
// no I/O.
//
// Source: Hough et al., "Adaptive Space-efficient Collectives for Dynamic and Unstructured Sparsity
// on GPU Platforms" (SpCCL), section IV.C.
#pragma once

#include <cstdint>
#include <optional>

#include "collective/op.h"
#include "collective/phase.h"
#include "collective/policy/decision.h"
#include "collective/policy/fastest_format.h"
#include "collective/policy/settings.h"
#include "collective/policy/tuning.h"
#include "kernels/dtype.h"

namespace spccl::policy {

// The decisions of one participant in one lane of one operation, in the order of its sends. Sends
// that share one frame (plan::SharesFrame) are one:
//
//   decision = Next(phase, link, elements)
//   if decision.count_first: decision = Choose(decision, type, CountNonzeros(...), elements)
//   else if compressed: Compressed(nnz, elements), whatever then travels, and Foretell(...)
//   else SentDense(), unless elements == 0
//
// Step 0 compresses: so the density d_0 is measured. From then on the next send is compressed if
// the sparsity known or extrapolated at the send before is above the threshold of its link. A
// compression sets the density to what it counted; a dense send extrapolates it, for independent
// uniform positions: d_next = 1 - (1 - d_prev) (1 - d_0).
//
// All-gather and broadcast move data unchanged: they compress the first send, whatever the
// thresholds. The all-gather of an all-reduce decides anew, by the ag threshold; Counted() tells
// the result's own density, where the runtime counted it.
//
// Codec auto takes, between nodes, the format that gets there first by the costs that were measured
// (policy/fastest_format.h); within a node the smaller of pici and coo, whose frames are equally
// large at a density of about 0.0315, whatever the type (policy/wire_format.h). Where the density
// is not known, that is before step 0 and in whatever moves data unchanged, the slice is counted
// first, and goes dense without having been encoded if the format is no smaller (kNoGain). An
// estimate may do where it says what most sends of the last operation did (`usual`): ask a copy of
// the policy, keep that if it says dense, and else encode in the format that it says, which counts
// (Compressed). From then on the format
// goes by the density that the next partial sum is expected to have: that of the send before,
// merged with d_0 once more in the reduce-scatter phase. The thresholds are those of the format;
// gap has pici's.
//
// A threshold that is auto: the same model says whether that format or dense gets there first, also
// for the first send, which is counted before. It keeps to what most sends of the phase did in the
// last operation (`habit`) unless the other is faster by kHysteresis. Where no costs are known,
// auto is the paper's threshold.
//
// Small, copyable, not thread-safe.
class SendPolicy {
 public:
  // Of the time that the model gives a send: less than it can be wrong by, and no choice to change.
  static constexpr double kHysteresis = 0.03;

  SendPolicy() = default;  // everything dense
  // `costs`: of the links between nodes; must outlive the policy. Null: not known.
  SendPolicy(const Settings& settings, const OpDesc& op, const Costs* costs = nullptr,
             const Habit& habit = {});

  Decision Next(Phase phase, Link link, uint64_t elements) const;

  // The decision in the place of one whose count_first is set. `type` is the frame's.
  Decision Choose(Decision first, DType type, uint64_t nnz, uint64_t elements);

  // Adds the forecasts to a compressed send's decision that was made before its density was known;
  // once Compressed() has told that. `type` is the frame's.
  void Foretell(DType type, uint64_t elements, Decision* decision) const;

  // Of a frame of `bytes` that goes on as it came.
  Decision PassOn(Phase phase, Link link, Format format, uint64_t bytes) const;

  // Bytes an element of the smallest frame that the settings allow in the phase at this density,
  // whatever is faster.
  double LeastBytes(Phase phase, Link link, double density) const;

  // Require elements > 0; a slice without elements says nothing.
  void Compressed(uint64_t nnz, uint64_t elements);
  void Counted(uint64_t nnz, uint64_t elements);
  void SentDense();

  // Whether Next may ever compress.
  bool compresses() const { return codec_ != Codec::kDense; }
  // The density known or extrapolated for the next send; empty before step 0.
  std::optional<double> density() const { return density_; }

 private:
  double DensityOfNext(Phase phase) const;
  double SetThreshold(Format format, Phase phase, Link link) const;
  // The same, with the paper's where it is auto and no costs are known.
  double ThresholdOf(Format format, Phase phase, Link link) const;
  Sending SendingOf(const Decision& decision, double density) const;
  Outlook Look(const Decision& decision, double density, double width) const;
  bool IsFaster(const Outlook& outlook, Phase phase) const;
  void Tell(const Outlook& outlook, uint64_t elements, Decision* decision) const;

  const Costs* costs_ = nullptr;
  double width_ = 4, partial_width_ = 4;  // of an element
  Codec codec_ = Codec::kDense;
  Reason dense_reason_ = Reason::kCodecDense;
  Habit habit_{};
  Thresholds pici_ = kPiciThresholds, coo_ = kCooThresholds;
  bool reduces_ = false;
  bool extrapolated_ = false;
  std::optional<double> first_density_;  // d_0
  std::optional<double> density_;
};

}  // namespace spccl::policy
