// Which of a few ways to do the same thing is fastest, found by doing it each way now and then.
// Pure; no clock, and no chance: those who ask alike are answered alike, but for what each saw to
// be fastest; of several who should go alike one leads, and the others follow.
//
// A bandit with a schedule: rounds in which every way goes once; after the first few only those
// that are close to the best, since these need more than a look to be told apart. From then on the
// fastest goes, and every kRetrialEvery-th time one of the others, in turn. What counts of a way is
// the lower third of what it took the last few times: what disturbs an operation makes it longer,
// and a link that lets bursts pass makes some shorter. Another way is taken only if it is faster by
// more than kHysteresis; if that was luck, it is soon left again.
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
  static constexpr size_t kRounds = 15;
  static constexpr size_t kRetrialEvery = 64;
  static constexpr double kHysteresis = 0.03;
  // A way that took so many times as long as the best is passed over: in the first kRoundsOfAll
  // rounds (but for the first way, which meets a cold start), and in those after them.
  static constexpr size_t kRoundsOfAll = 3;
  static constexpr double kHopeless = 2, kNotClose = 1.2;

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
  static constexpr size_t kKept = 15;
  struct Seen {
    std::array<int64_t, kKept> times{};
    uint64_t count = 0;
  };

  bool IsPassedOver(size_t round, size_t way) const;
  size_t chosen() const { return followed_.value_or(best_); }

  std::vector<Seen> ways_;
  std::optional<size_t> followed_;
  uint64_t asked_ = 0;
  size_t best_ = 0;
};

}  // namespace spccl::policy
