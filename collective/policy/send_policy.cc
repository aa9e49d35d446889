#include "collective/policy/send_policy.h"

#include "collective/policy/fastest_format.h"
#include "collective/policy/wire_format.h"
#include "kernels/layout.h"
#include "kernels/redop.h"

namespace spccl::policy {
namespace {

// 1 - (1 - d)(1 - e): the density of the sum of two, at independent uniform positions.
double Merged(double d, double e) {
  return 1 - (1 - d) * (1 - e);
}

}  // namespace

SendPolicy::SendPolicy(const Settings& settings, const OpDesc& op, const Costs* costs)
    : costs_(costs),
      width_(static_cast<double>(SizeOf(op.dtype))),
      codec_(settings.codec),
      pici_(settings.pici),
      coo_(settings.coo),
      reduces_(Reduces(op.kind)) {
  if (codec_ == Codec::kDense || !reduces_ || SparsityPays(op.dtype, op.redop)) return;
  codec_ = Codec::kDense;
  dense_reason_ = Reason::kOperationDense;
}

Decision SendPolicy::Next(Phase phase, Link link, uint64_t elements) const {
  if (elements == 0) return {.reason = Reason::kEmpty, .link = link};
  if (!compresses()) return {.reason = dense_reason_, .link = link};
  if (!reduces_ || !density_.has_value()) {
    return {.format = SparseFormat(codec_, 1),
            .reason = Reason::kFirst,
            .link = link,
            .count_first = codec_ == Codec::kAuto};
  }
  const Format format = FormatAt(DensityOfNext(phase), width_, link);
  const Thresholds& thresholds = format == Format::kCoo ? coo_ : pici_;
  Decision decision{.link = link, .sparsity = 1 - *density_};
  if (phase == Phase::kAllGather) {
    decision.threshold = thresholds.ag;
  } else {
    decision.threshold = link == Link::kInter ? thresholds.inter : thresholds.intra;
  }
  if (decision.sparsity > decision.threshold) {
    decision.format = format;
    decision.reason = extrapolated_ ? Reason::kExtrapolatedAbove : Reason::kKnownAbove;
  } else {
    decision.reason = extrapolated_ ? Reason::kExtrapolatedBelow : Reason::kKnownBelow;
  }
  return decision;
}

double SendPolicy::DensityOfNext(Phase phase) const {
  const bool grows = phase == Phase::kReduceScatter && !extrapolated_ && first_density_.has_value();
  return grows ? Merged(*density_, *first_density_) : *density_;
}

Format SendPolicy::FormatAt(double density, double width, Link link) const {
  const bool by_costs = codec_ == Codec::kAuto && link == Link::kInter && costs_ != nullptr;
  return by_costs ? FastestFormat(*costs_, width, density).format : SparseFormat(codec_, density);
}

Decision SendPolicy::Choose(Decision first, DType type, uint64_t nnz, uint64_t elements) {
  Compressed(nnz, elements);
  first.format = FormatAt(*density_, static_cast<double>(SizeOf(type)), first.link);
  first.count_first = false;
  const uint64_t dense = LayoutOf(Format::kDense, type, elements, nnz).total;
  if (LayoutOf(first.format, type, elements, nnz).total >= dense) {
    first.format = Format::kDense;
    first.reason = Reason::kNoGain;
  }
  return first;
}

void SendPolicy::Compressed(uint64_t nnz, uint64_t elements) {
  Counted(nnz, elements);
  if (!first_density_.has_value()) first_density_ = density_;
}

void SendPolicy::Counted(uint64_t nnz, uint64_t elements) {
  density_ = static_cast<double>(nnz) / static_cast<double>(elements);
  extrapolated_ = false;
}

void SendPolicy::SentDense() {
  if (!density_.has_value() || !first_density_.has_value()) return;
  density_ = Merged(*density_, *first_density_);
  extrapolated_ = true;
}

}  // namespace spccl::policy
