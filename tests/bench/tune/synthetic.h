// Sweeps whose best choices are known.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "bench/tune/samples.h"

namespace spccl::tune {

// What is sparse, and what is small, is faster by doubling; the rest by splitting; ring is never
// the fastest. Times are off by `noise` at most.
inline std::string BestOf(const Case& at) {
  const bool sparse = at.sparsity >= 0.9;
  return sparse || at.bytes < (1 << 20) ? "recursive-doubling" : "split";
}

inline std::vector<Measured> SyntheticCases(double noise, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto factor = [&] { return 1 + noise * (static_cast<double>(random() % 2001) / 1000 - 1); };
  std::vector<Measured> cases;
  for (const uint32_t nodes : {2U, 4U}) {
    for (const double sparsity : {0.0, 0.3, 0.5, 0.9, 0.99, 0.999}) {
      for (uint64_t bytes = 64 << 10; bytes <= 64 << 20; bytes *= 2) {
        Measured one{.at = {.op = OpKind::kAllReduce,
                            .nodes = nodes,
                            .ranks = nodes,
                            .bytes = bytes,
                            .sparsity = sparsity}};
        const double base = 1e-3 * static_cast<double>(bytes);
        const bool doubling = BestOf(one.at) == "recursive-doubling";
        one.time_us["recursive-doubling"] = base * (doubling ? 1 : 1.4) * factor();
        one.time_us["split"] = base * (doubling ? 1.3 : 1) * factor();
        one.time_us["two-level-ring"] = base * 1.5 * factor();
        one.auto_us = one.time_us["split"];
        cases.push_back(one);
      }
    }
  }
  return cases;
}

}  // namespace spccl::tune
