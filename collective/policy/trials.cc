#include "collective/policy/trials.h"

#include <algorithm>

#include "base/status.h"

namespace spccl::policy {

Trials::Trials(size_t ways) : ways_(ways) {
  SPCCL_CHECK(ways > 0);
}

size_t Trials::Next() {
  const uint64_t asked = asked_++;
  const size_t round = asked / ways_.size(), way = asked % ways_.size();
  if (round < kRounds) return IsPassedOver(round, way) ? chosen() : way;
  if (asked % kRetrialEvery == 0) return asked / kRetrialEvery % ways_.size();
  return chosen();
}

void Trials::Follow(size_t way) {
  SPCCL_CHECK(way < ways_.size());
  followed_ = way;
}

void Trials::Took(size_t way, int64_t time) {
  SPCCL_CHECK(way < ways_.size());
  Seen& seen = ways_[way];
  seen.times[seen.count++ % kKept] = time;
  // Anew from the one in use, which may have become slower.
  size_t best = best_;
  for (size_t other = 0; other < ways_.size(); ++other) {
    const std::optional<int64_t> least = TimeOf(best), its = TimeOf(other);
    if (!its || other == best) continue;
    // Among the others, the least; against the one in use, with an allowance.
    const double allowed = best == best_ ? 1 - kHysteresis : 1;
    if (!least || static_cast<double>(*its) < static_cast<double>(*least) * allowed) best = other;
  }
  best_ = best;
}

std::optional<int64_t> Trials::TimeOf(size_t way) const {
  const Seen& seen = ways_[way];
  if (seen.count == 0) return std::nullopt;
  auto times = seen.times;
  const size_t kept = std::min<size_t>(seen.count, kKept);
  const auto third = times.begin() + static_cast<ptrdiff_t>(kept / 3);
  std::nth_element(times.begin(), third, times.begin() + static_cast<ptrdiff_t>(kept));
  return *third;
}

bool Trials::IsPassedOver(size_t round, size_t way) const {
  const bool early = round < kRoundsOfAll;
  if (early && way == 0) return false;
  const std::optional<int64_t> its = TimeOf(way), least = TimeOf(best_);
  if (!its || !least) return false;
  return static_cast<double>(*its) > (early ? kHopeless : kNotClose) * static_cast<double>(*least);
}

}  // namespace spccl::policy
