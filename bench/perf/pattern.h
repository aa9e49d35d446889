// The data of a performance run, and the oracle of its results.
//
// Every element follows from (seed, rank, index) alone, so that any rank can work out what any
// other one sent. An element is nonzero with probability 1 - sparsity, independently of all others;
// clustered, half of the elements (more, if it has to be) of some stretches are, independently of
// others, and none of the rest.
// Values are small whole numbers, chosen so that sums over up to 64 ranks, products, minima and
// maxima are exact in every dtype and in any order: nothing needs a tolerance, except the division
// of a floating average (one unit in the last place).
#pragma once

#include <cstdint>

#include "bench/perf/problem.h"

namespace spccl::bench {

inline constexpr uint32_t kMaxRanks = 64;

class Pattern {
 public:
  // Requires problem.ranks <= kMaxRanks.
  Pattern(const Problem& problem, uint64_t seed, double sparsity, bool clustered = false);

  static constexpr uint64_t kStretch = 128;  // elements

  // Writes rank `rank`'s input: problem.send_bytes() at `send`.
  void Fill(uint32_t rank, void* send) const;

  // How many of the elements at `recv` (problem.recv_bytes()) are not what rank `rank` must
  // receive.
  uint64_t CountWrong(uint32_t rank, const void* recv) const;

 private:
  int64_t ValueAt(uint32_t rank, uint64_t index) const;
  // The element of a reduction's result, before an average's division.
  int64_t ReducedAt(uint64_t index) const;
  template <typename T>
  uint64_t CountWrongAs(uint32_t rank, const T* recv) const;

  Problem problem_;
  uint64_t seed_;
  bool clustered_;
  // A stretch has no nonzeros, or an element (of one that has some) is zero, if its 32 random bits
  // are less than this.
  uint64_t empty_below_ = 0, zero_below_;
};

}  // namespace spccl::bench
