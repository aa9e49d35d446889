#include "collective/policy/send_policy.h"

#include <algorithm>

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

SendPolicy::SendPolicy(const Settings& settings, const OpDesc& op)
    : codec_(settings.codec), pici_(settings.pici), coo_(settings.coo), reduces_(Reduces(op.kind)) {
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
  const Format format = SparseFormat(codec_, DensityOfNext(phase));
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

Decision SendPolicy::Choose(Decision first, DType type, uint64_t nnz, uint64_t elements) {
  Compressed(nnz, elements);
  const uint64_t coo = LayoutOf(Format::kCoo, type, elements, nnz).total;
  const uint64_t pici = LayoutOf(Format::kPici, type, elements, nnz).total;
  first.format = coo < pici ? Format::kCoo : Format::kPici;
  first.count_first = false;
  if (std::min(coo, pici) >= LayoutOf(Format::kDense, type, elements, nnz).total) {
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
