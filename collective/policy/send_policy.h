// Decides, send by send, whether a participant compresses. Pure; no clock, no I/O.
//
// Source: Hough et al., "Adaptive Space-efficient Collectives for Dynamic and Unstructured Sparsity
// on GPU Platforms" (SpCCL), section IV.C.
#pragma once

#include <cstdint>
#include <optional>

#include "collective/op.h"
#include "collective/phase.h"
#include "collective/policy/decision.h"
#include "collective/policy/settings.h"

namespace spccl::policy {

// The sparse format that `codec` names; nothing for kDense.
std::optional<Format> FormatOf(Codec codec);

// The decisions of one participant in one lane of one operation, in the order of its sends:
//
//   decision = Next(phase, link, elements)
//   if compressed: Compressed(nnz, elements), whatever then travels; else SentDense()
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
// Small, copyable, not thread-safe.
class SendPolicy {
 public:
  SendPolicy() = default;  // everything dense
  SendPolicy(const Settings& settings, const OpDesc& op);

  Decision Next(Phase phase, Link link, uint64_t elements) const;

  // Require elements > 0; a slice without elements says nothing.
  void Compressed(uint64_t nnz, uint64_t elements);
  void Counted(uint64_t nnz, uint64_t elements);
  void SentDense();

  // Whether Next may ever compress.
  bool compresses() const { return format_ != Format::kDense; }
  // The density known or extrapolated for the next send; empty before step 0.
  std::optional<double> density() const { return density_; }

 private:
  Format format_ = Format::kDense;
  Reason dense_reason_ = Reason::kCodecDense;
  Thresholds thresholds_ = kPiciThresholds;
  bool reduces_ = false;
  bool extrapolated_ = false;
  std::optional<double> first_density_;  // d_0
  std::optional<double> density_;
};

}  // namespace spccl::policy
