// Which of a few ways to do the same thing is fastest, found by doing it each way now and then.
// Pure; no clock, and no chance: those who ask alike are answered alike, but for what each saw to
// be fastest; of several who should go alike one leads, and the others follow.
//
// A bandit with a schedule: rounds in which every way goes, kRoundsOfAll of all ways, then only of
// those that are close to the best, and the last kRoundsOfClosest only of those that are closest,
// since these need more than a look to be told apart. From then on the fastest goes, and one time
// in kRetrialEvery another.
//
// A way goes several times in a row, and the first of them does not count: what came before it
// leaves a link with credit for a burst, or without. One that needs more of the link than it gives
// would be measured on what a frugal one saved up, and a frugal one on what it left. For the same
// reason what counts of a way is not its best times, but what most of its times are within. Another
// way is taken only if it is faster by more than kHysteresis. If that was luck, or if the one
// before was left for a disturbance, it is looked at again soon, and then at growing distances.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace spccl::policy {

// Copyable, not thread-safe.
class Trials {
 public:
  static constexpr size_t kRounds = 31;
  // One operation in so many goes another way for a look, kLook in a row; as many again at most go
  // the way that was left last.
  static constexpr size_t kRetrialEvery = 64;
  static constexpr size_t kLook = 5;
  static constexpr double kHysteresis = 0.03;
  // A way that took so many times as long as the best is passed over: in the first kRoundsOfAll
  // rounds (but for the first way, which meets a cold start), in those after them, and in the last
  // kRoundsOfClosest.
  static constexpr size_t kRoundsOfAll = 3, kRoundsOfClosest = 16;
  static constexpr double kHopeless = 2, kNotClose = 1.2, kNotClosest = 1.1;

  // Of ways 0 to `ways` - 1, one at least. The first is taken where nothing is known.
  explicit Trials(size_t ways);

  // The way to do it next.
  size_t Next();
  // What it took so, in any unit; of what failed nothing is told.
  void Took(size_t way, int64_t time);
  // From now on this way goes where the fastest would, whatever is seen here.
  void Follow(size_t way);

  // The fastest so far.
  size_t best() const { return best_; }
  bool settled() const { return asked_ >= kRounds * ways_.size(); }
  // What counts of a way; empty before it was tried.
  std::optional<int64_t> TimeOf(size_t way) const;

 private:
  static constexpr size_t kKept = 127;
  struct Seen {
    std::array<int64_t, kKept> times{};
    uint64_t count = 0;
    int64_t in_use = 0, looked_at = 0;  // what counts of it, as either
  };

  size_t InRounds(uint64_t asked) const;
  bool IsPassedOver(uint64_t round, size_t way) const;
  bool IsHopeless(int64_t time) const;
  // The way of a look that starts now, if one does.
  std::optional<size_t> StartsLook(uint64_t asked);
  void Left(size_t way);
  struct Range {
    size_t newest, oldest;
  };
  static int64_t TimeWithin(const Seen& seen, Range range, double share);
  static bool HasChanged(const Seen& seen);
  void Sum(Seen* seen, bool in_use) const;
  size_t chosen() const { return followed_.value_or(best_); }

  std::vector<Seen> ways_;
  std::optional<size_t> followed_;
  uint64_t asked_ = 0;
  size_t best_ = 0;

  size_t last_ = 0;             // what Next() said
  size_t in_a_row_ = 0;         // how often
  int64_t took_ = 0;            // by Took()
  size_t look_ = 0;             // the way that is looked at
  uint64_t look_end_ = 0;       // until so many were asked
  std::optional<size_t> left_;  // the way that was in use before
  uint64_t left_at_ = 0;        // when so many had been asked
  uint64_t looks_back_ = 0;
};

}  // namespace spccl::policy
