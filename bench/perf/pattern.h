// The data of a performance run, and the oracle of its results.
//
// Every element follows from (seed, rank, index) alone, so that any rank can work out what any
// other one sent. An element is nonzero with probability 1 - sparsity, independently of all others.
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
  Pattern(const Problem& problem, uint64_t seed, double sparsity);

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
  uint64_t zero_below_;  // an element is zero if its 32 random bits are less than this
};

}  // namespace spccl::bench
