#include "collective/policy/send_policy.h"

#include <algorithm>

#include "base/status.h"
#include "collective/policy/wire_format.h"
#include "kernels/layout.h"
#include "kernels/redop.h"

namespace spccl::policy {
namespace {

// 1 - (1 - d)(1 - e): the density of the sum of two, at independent uniform positions.
double Merged(double d, double e) {
  return 1 - (1 - d) * (1 - e);
}

// Of a slice, not of an element.
Forecast Of(uint64_t elements, Forecast forecast) {
  const auto count = static_cast<double>(elements);
  forecast.encode_seconds *= count;
  forecast.wire_seconds *= count;
  forecast.seconds *= count;
  return forecast;
}

double At(const Thresholds& thresholds, Phase phase, Link link) {
  if (phase == Phase::kAllGather) return thresholds.ag;
  return link == Link::kInter ? thresholds.inter : thresholds.intra;
}

}  // namespace

Habit HabitOf(const std::array<std::array<uint64_t, kReasonCount>, kPhaseCount>& decisions) {
  Habit habit{};
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    uint64_t sparse = 0, dense = 0;
    for (int reason = 0; reason < kReasonCount; ++reason) {
      const std::optional<bool> compresses = Compresses(static_cast<Reason>(reason));
      if (compresses) (*compresses ? sparse : dense) += decisions[phase][reason];
    }
    if (sparse > 2 * dense) habit[phase] = Leaning::kSparse;
    if (dense > 2 * sparse) habit[phase] = Leaning::kDense;
  }
  return habit;
}

SendPolicy::SendPolicy(const Settings& settings, const OpDesc& op, const Costs* costs,
                       const Habit& habit)
    : costs_(costs),
      width_(static_cast<double>(SizeOf(op.dtype))),
      codec_(settings.codec),
      habit_(habit),
      pici_(settings.pici),
      coo_(settings.coo),
      reduces_(Reduces(op.kind)) {
  partial_width_ =
      reduces_ ? static_cast<double>(SizeOf(AccumulatorOf(op.dtype, op.redop))) : width_;
  if (codec_ == Codec::kDense || !reduces_ || SparsityPays(op.dtype, op.redop)) return;
  codec_ = Codec::kDense;
  dense_reason_ = Reason::kOperationDense;
}

Decision SendPolicy::Next(Phase phase, Link link, uint64_t elements) const {
  SPCCL_CHECK(elements <= kMaxFrameElements);  // no format could represent it
  Decision decision{.reason = Reason::kEmpty, .link = link, .phase = phase};
  if (elements == 0) return decision;
  decision.reason = dense_reason_;
  if (!compresses()) {
    // What else it might be depends on a density that nobody counts.
    if (costs_ != nullptr && link == Link::kInter) {
      decision.forecast = Of(elements, Foresee(*costs_, Format::kDense, SendingOf(decision, 1)));
    }
    return decision;
  }
  if (!reduces_ || !density_.has_value()) {
    decision.format = SparseFormat(codec_, 1);
    decision.reason = Reason::kFirst;
    decision.count_first =
        codec_ == Codec::kAuto || ThresholdOf(decision.format, phase, link) == kAutoThreshold;
    if (decision.count_first) decision.usual = habit_[static_cast<size_t>(phase)];
    return decision;
  }
  const double density = DensityOfNext(phase);
  const double width = phase == Phase::kReduceScatter ? partial_width_ : width_;
  std::optional<Outlook> outlook;
  if (costs_ != nullptr) outlook = Look(decision, density, width);
  const Format format = outlook ? outlook->sparse.format : SparseFormat(codec_, density);
  const double threshold = ThresholdOf(format, phase, link);
  decision.sparsity = 1 - *density_;
  if (threshold == kAutoThreshold) {
    const bool faster = IsFaster(*outlook, phase);
    decision.format = faster ? format : Format::kDense;
    decision.reason = faster ? Reason::kModelSparse : Reason::kModelDense;
  } else {
    decision.threshold = threshold;
    const bool above = decision.sparsity > threshold;
    decision.format = above ? format : Format::kDense;
    if (extrapolated_) {
      decision.reason = above ? Reason::kExtrapolatedAbove : Reason::kExtrapolatedBelow;
    } else {
      decision.reason = above ? Reason::kKnownAbove : Reason::kKnownBelow;
    }
  }
  if (outlook) Tell(*outlook, elements, &decision);
  return decision;
}

double SendPolicy::DensityOfNext(Phase phase) const {
  const bool grows = phase == Phase::kReduceScatter && !extrapolated_ && first_density_.has_value();
  return grows ? Merged(*density_, *first_density_) : *density_;
}

double SendPolicy::SetThreshold(Format format, Phase phase, Link link) const {
  return At(format == Format::kCoo ? coo_ : pici_, phase, link);
}

double SendPolicy::ThresholdOf(Format format, Phase phase, Link link) const {
  const double threshold = SetThreshold(format, phase, link);
  if (threshold != kAutoThreshold || costs_ != nullptr) return threshold;
  return At(format == Format::kCoo ? kCooThresholds : kPiciThresholds, phase, link);
}

double SendPolicy::LeastBytes(Phase phase, Link link, double density) const {
  double least = width_;
  const auto consider = [&](Format format) {
    const double threshold = SetThreshold(format, phase, link);
    if (threshold != kAutoThreshold && 1 - density <= threshold) return;
    least = std::min(least, BytesPerElement(format, width_, density));
  };
  if (codec_ == Codec::kAuto) {
    for (const Format format : kAutoFormats) consider(format);
  } else {
    consider(SparseFormat(codec_, density));
  }
  return least;
}

Sending SendPolicy::SendingOf(const Decision& decision, double density) const {
  const bool combines = decision.phase == Phase::kReduceScatter && reduces_;
  return {.link = decision.link,
          .width = combines ? partial_width_ : width_,
          .density = density,
          .combines = combines};
}

Outlook SendPolicy::Look(const Decision& decision, double density, double width) const {
  Sending sending = SendingOf(decision, density);
  sending.width = width;
  return Compare(*costs_, codec_, sending);
}

bool SendPolicy::IsFaster(const Outlook& outlook, Phase phase) const {
  const Leaning leaning = habit_[static_cast<size_t>(phase)];
  const double sparse = outlook.sparse.seconds, dense = outlook.dense.seconds;
  if (leaning == Leaning::kSparse) return sparse * (1 - kHysteresis) < dense;
  if (leaning == Leaning::kDense) return sparse < dense * (1 - kHysteresis);
  return sparse < dense;
}

void SendPolicy::Tell(const Outlook& outlook, uint64_t elements, Decision* decision) const {
  const bool dense = decision->format == Format::kDense;
  Forecast chosen = dense ? outlook.dense : outlook.sparse;
  Forecast other = dense ? outlook.sparse : outlook.dense;
  if (outlook.other_sparse && outlook.other_sparse->seconds < other.seconds) {
    other = *outlook.other_sparse;
  }
  decision->forecast = Of(elements, chosen);
  decision->runner_up = Of(elements, other);
}

void SendPolicy::Foretell(DType type, uint64_t elements, Decision* decision) const {
  if (costs_ == nullptr || decision->forecast.has_value() || !density_.has_value()) return;
  Tell(Look(*decision, *density_, static_cast<double>(SizeOf(type))), elements, decision);
}

Decision SendPolicy::Choose(Decision first, DType type, uint64_t nnz, uint64_t elements) {
  Compressed(nnz, elements);
  first.count_first = false;
  first.usual = Leaning::kNone;
  std::optional<Outlook> outlook;
  if (costs_ != nullptr) outlook = Look(first, *density_, static_cast<double>(SizeOf(type)));
  first.format = outlook ? outlook->sparse.format : SparseFormat(codec_, *density_);
  const bool by_model = ThresholdOf(first.format, first.phase, first.link) == kAutoThreshold;
  const uint64_t dense = LayoutOf(Format::kDense, type, elements, nnz).total;
  if (LayoutOf(first.format, type, elements, nnz).total >= dense) {
    first.format = Format::kDense;
    first.reason = Reason::kNoGain;
  } else if (by_model && !IsFaster(*outlook, first.phase)) {
    first.format = Format::kDense;
    first.reason = Reason::kModelDense;
  }
  if (outlook) Tell(*outlook, elements, &first);
  return first;
}

Decision SendPolicy::PassOn(Phase phase, Link link, Format format, uint64_t bytes) const {
  Decision decision{.format = format, .reason = Reason::kForwarded, .link = link, .phase = phase};
  if (costs_ == nullptr || link == Link::kIntra) return decision;
  const double seconds = static_cast<double>(bytes) / costs_->link_rate;
  decision.forecast = Forecast{.format = format, .wire_seconds = seconds, .seconds = seconds};
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
  density_ = Merged(*density_, *first_density_);
  extrapolated_ = true;
}

}  // namespace spccl::policy
