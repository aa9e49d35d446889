#include "collective/policy/send_policy.h"

#include "kernels/redop.h"

namespace spccl::policy {

std::optional<Format> FormatOf(Codec codec) {
  switch (codec) {
    case Codec::kDense:
      return std::nullopt;
    case Codec::kAuto:
    case Codec::kPici:
      return Format::kPici;
    case Codec::kPiciColumn:
      return Format::kPiciColumn;
    case Codec::kCoo:
      return Format::kCoo;
  }
  return std::nullopt;
}

SendPolicy::SendPolicy(const Settings& settings, const OpDesc& op) : reduces_(Reduces(op.kind)) {
  const std::optional<Format> format = FormatOf(settings.codec);
  if (!format.has_value()) return;
  if (reduces_ && !SparsityPays(op.dtype, op.redop)) {
    dense_reason_ = Reason::kOperationDense;
    return;
  }
  format_ = *format;
  thresholds_ = *format == Format::kCoo ? settings.coo : settings.pici;
}

Decision SendPolicy::Next(Phase phase, Link link, uint64_t elements) const {
  if (elements == 0) return {.reason = Reason::kEmpty, .link = link};
  if (!compresses()) return {.reason = dense_reason_, .link = link};
  if (!reduces_ || !density_.has_value()) {
    return {.format = format_, .reason = Reason::kFirst, .link = link};
  }
  Decision decision{.link = link, .sparsity = 1 - *density_};
  if (phase == Phase::kAllGather) {
    decision.threshold = thresholds_.ag;
  } else {
    decision.threshold = link == Link::kInter ? thresholds_.inter : thresholds_.intra;
  }
  if (decision.sparsity > decision.threshold) {
    decision.format = format_;
    decision.reason = extrapolated_ ? Reason::kExtrapolatedAbove : Reason::kKnownAbove;
  } else {
    decision.reason = extrapolated_ ? Reason::kExtrapolatedBelow : Reason::kKnownBelow;
  }
  return decision;
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
  density_ = 1 - (1 - *density_) * (1 - *first_density_);
  extrapolated_ = true;
}

}  // namespace spccl::policy
