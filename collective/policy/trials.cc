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
static_assert(Trials::kRoundsOfClosest % kTurn == 0);

constexpr uint64_t kLookEvery = Trials::kLook * Trials::kRetrialEvery;

// Looks at the way that was left start at multiples of this: of nodes that hear a few operations
// later of a change, nearly all still look in the same operations. The first, second and fourth.
constexpr uint64_t kLookBackEvery = 32;
constexpr uint64_t kLastLookBack = 4;
// That many before as many operations as they cost have been asked for.
constexpr uint64_t kReserve = 4;

// A way that was taken stays for so many operations at least.
constexpr uint64_t kStay = 8;

// What a larger half of its times is within counts of a way, since it may have credit for a burst
// in every other operation; over so many that ways a few percent apart are told apart, and
// disturbances are seldom as many by chance. Of the way in use also what a third of the last few is
// within: if that is long, it has become slower.
constexpr double kMost = 0.6, kOfLate = 0.34;
constexpr size_t kLate = 15;

// Another way has changed when most times of two looks are less than all but few before, or as many
// more. What was before says nothing then.
constexpr size_t kTwoLooks = 8;
constexpr double kFew = 0.15;

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
  const size_t way =
      asked < of_all ? asked / kRoundsOfAll : (asked - of_all) / kTurn % ways_.size();
  return IsPassedOver(asked / ways_.size(), way) ? chosen() : way;
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
  Sum(&ways_[way], false);
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
  Sum(&seen, way == chosen());
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

bool Trials::HasChanged(const Seen& seen) {
  if (seen.count < 2 * kTwoLooks) return false;
  const Range late{0, kTwoLooks}, before{kTwoLooks, kKept};
  return TimeWithin(seen, late, kMost) < TimeWithin(seen, before, kFew) ||
         TimeWithin(seen, late, kOfLate) > TimeWithin(seen, before, 1 - kFew);
}

void Trials::Sum(Seen* seen, bool in_use) const {
  if (seen->count == 0) return;
  if (settled() && !in_use && HasChanged(*seen)) {
    std::array<int64_t, kTwoLooks> late;
    for (size_t i = 0; i < kTwoLooks; ++i) late[i] = seen->times[(seen->count - 1 - i) % kKept];
    std::reverse_copy(late.begin(), late.end(), seen->times.begin());
    seen->count = kTwoLooks;
  }
  seen->looked_at = TimeWithin(*seen, {0, kKept}, kMost);
  seen->in_use = std::max(seen->looked_at, TimeWithin(*seen, {0, kLate}, kOfLate));
}

std::optional<int64_t> Trials::TimeOf(size_t way) const {
  const Seen& seen = ways_[way];
  if (seen.count == 0) return std::nullopt;
  return way == chosen() ? seen.in_use : seen.looked_at;
}

// What that share of the times is within, of those from `newest` to `oldest` times ago.
int64_t Trials::TimeWithin(const Seen& seen, Range range, double share) {
  const size_t oldest = std::min<size_t>({seen.count, kKept, range.oldest});
  std::array<int64_t, kKept> times;
  const auto begin = times.begin();
  auto end = begin;
  for (size_t i = range.newest; i < oldest; ++i) *end++ = seen.times[(seen.count - 1 - i) % kKept];
  const auto at = begin + static_cast<ptrdiff_t>(share * static_cast<double>(end - begin));
  std::nth_element(begin, at, end);
  return *at;
}

bool Trials::IsHopeless(int64_t time) const {
  const std::optional<int64_t> usual = TimeOf(chosen());
  return usual && static_cast<double>(time) > kHopeless * static_cast<double>(*usual);
}

bool Trials::IsPassedOver(uint64_t round, size_t way) const {
  const bool early = round < kRoundsOfAll, last = round >= kRounds - kRoundsOfClosest;
  if (early && way == 0) return false;
  const std::optional<int64_t> least = TimeOf(best_);
  if (!least || ways_[way].count == 0) return false;
  // While few of its times are known, by the best: one may be another way's, or a disturbance's,
  // work.
  const int64_t its = last ? *TimeOf(way) : TimeWithin(ways_[way], {0, kKept}, 0);
  const double most = early ? kHopeless : last ? kNotClosest : kNotClose;
  return static_cast<double>(its) > most * static_cast<double>(*least);
}

}  // namespace spccl::policy
