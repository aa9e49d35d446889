#include "collective/policy/trials.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"

namespace spccl::policy {
namespace {

// A way's turn in the rounds after the first.
constexpr size_t kTurn = 4;
static_assert((Trials::kRounds - Trials::kRoundsOfAll) % kTurn == 0);

constexpr uint64_t kLookEvery = Trials::kLook * Trials::kRetrialEvery;

// Looks at the way that was left start at multiples of this: of nodes that hear a few operations
// later of a change, nearly all still look in the same operations. The first, second and fourth.
constexpr uint64_t kLookBackEvery = 32;
constexpr uint64_t kLastLookBack = 4;
// That many before as many operations as they cost have been asked for.
constexpr uint64_t kReserve = 4;

// A way that was taken stays for so many operations at least.
constexpr uint64_t kStay = 8;

// Of the way in use: what a larger half of its times is within, since it may have credit for a
// burst in every other operation. Over so many that disturbances are seldom as many by chance. And
// what a third of the last few is within: if that is long, it has become slower.
constexpr double kMost = 0.6, kOfLate = 0.34;
constexpr size_t kLate = 15;
// Of another one: the median, of few times, so that two looks at it (or one, if the other differs)
// make it forget what was; while the rounds last there are no old times.
constexpr size_t kOfOthers = 8, kOfOthersInRounds = 15;

}  // namespace

Trials::Trials(size_t ways) : ways_(ways) {
  SPCCL_CHECK(ways > 0);
}

size_t Trials::Next() {
  const uint64_t asked = asked_++;
  size_t way = chosen();
  if (asked < kRounds * ways_.size()) {
    way = InRounds(asked);
  } else if (asked < look_end_) {
    way = look_;
  } else if (const std::optional<size_t> look = StartsLook(asked)) {
    way = look_ = *look;
    look_end_ = asked + kLook;
  }
  in_a_row_ = way == last_ ? in_a_row_ + 1 : 1;
  return last_ = way;
}

size_t Trials::InRounds(uint64_t asked) const {
  const uint64_t of_all = kRoundsOfAll * ways_.size();
  const bool early = asked < of_all;
  const size_t way = early ? asked / kRoundsOfAll : (asked - of_all) / kTurn % ways_.size();
  return IsPassedOver(early, way) ? chosen() : way;
}

std::optional<size_t> Trials::StartsLook(uint64_t asked) {
  const size_t others = ways_.size() - 1;
  if (others == 0) return std::nullopt;
  if (asked % kLookEvery == 0) {
    return (chosen() + 1 + asked / kLookEvery % others) % ways_.size();
  }
  if (!left_ || asked % kLookBackEvery != 0) return std::nullopt;
  const uint64_t since = asked / kLookBackEvery - left_at_ / kLookBackEvery;
  if (!std::has_single_bit(since) || since > kLastLookBack) return std::nullopt;
  if (looks_back_ * kLookEvery > asked + kReserve * kLookEvery) return std::nullopt;
  ++looks_back_;
  return left_;
}

void Trials::Follow(size_t way) {
  SPCCL_CHECK(way < ways_.size());
  // The first time it is what the rounds ended with.
  if (followed_ && *followed_ != way) Left(*followed_);
  followed_ = way;
}

void Trials::Left(size_t way) {
  left_ = way;
  left_at_ = asked_;
}

void Trials::Took(size_t way, int64_t time) {
  SPCCL_CHECK(way < ways_.size());
  Seen& seen = ways_[way];
  const bool first = in_a_row_ == 1;
  const int64_t before = std::exchange(took_, time);
  if (first && seen.count > 0) return;
  // Nobody needs to see that any longer.
  if (way != chosen() && in_a_row_ == 2 && IsHopeless(std::min(before, time))) look_end_ = asked_;
  seen.times[seen.count++ % kKept] = time;
  if (left_ && asked_ - left_at_ < kStay) return;
  // Anew from the one in use, which may have become slower.
  size_t best = best_;
  std::optional<int64_t> least = TimeOf(best);
  for (size_t other = 0; other < ways_.size(); ++other) {
    const std::optional<int64_t> its = other == best ? std::nullopt : TimeOf(other);
    if (!its) continue;
    // Among the others, the least; against the one in use, with an allowance.
    const double allowed = best == best_ ? 1 - kHysteresis : 1;
    if (least && static_cast<double>(*its) >= static_cast<double>(*least) * allowed) continue;
    best = other;
    least = its;
  }
  if (best == best_) return;
  if (settled() && !followed_) Left(best_);
  best_ = best;
}

std::optional<int64_t> Trials::TimeOf(size_t way) const {
  if (way != chosen()) {
    return TimeWithin(way, settled() ? kOfOthers : kOfOthersInRounds, kMost);
  }
  return std::max(TimeWithin(way, kKept, kMost), TimeWithin(way, kLate, kOfLate));
}

// What that share of the last times is within.
std::optional<int64_t> Trials::TimeWithin(size_t way, size_t last, double share) const {
  const Seen& seen = ways_[way];
  const size_t kept = std::min<size_t>({seen.count, kKept, last});
  if (kept == 0) return std::nullopt;
  std::array<int64_t, kKept> times;
  for (size_t i = 0; i < kept; ++i) times[i] = seen.times[(seen.count - 1 - i) % kKept];
  const auto at = static_cast<ptrdiff_t>(share * static_cast<double>(kept));
  std::nth_element(times.begin(), times.begin() + at, times.begin() + static_cast<ptrdiff_t>(kept));
  return times[static_cast<size_t>(at)];
}

bool Trials::IsHopeless(int64_t time) const {
  const std::optional<int64_t> usual = TimeOf(chosen());
  return usual && static_cast<double>(time) > kHopeless * static_cast<double>(*usual);
}

bool Trials::IsPassedOver(bool early, size_t way) const {
  if (early && way == 0) return false;
  // By its best time: of the few that are known one may be another way's, or a disturbance's, work.
  const std::optional<int64_t> its = TimeWithin(way, kKept, 0), least = TimeOf(best_);
  if (!its || !least) return false;
  return static_cast<double>(*its) > (early ? kHopeless : kNotClose) * static_cast<double>(*least);
}

}  // namespace spccl::policy
