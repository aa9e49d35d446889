// Stacking with each codec in turn: every rank has one image, and all get the mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/private_daemon.h"
#include "examples/image_stacking/images.h"

namespace image_stacking {

struct Settings {
  int ranks = 4;
  uint32_t nodes = 4;
  size_t side = 2048;
  double noise = 0.02;
  double bound = 1e-4;
  uint64_t seed = 1;
  int repeats = 5;
  std::string algorithm;  // SPCCL_ALGO's; empty: the daemon's choice
};

struct Run {
  std::string codec;
  double median_ms = 0;   // of the all-reduce, slowest rank
  Quality quality;        // against the exact stack
  bool all_alike = true;  // every rank holds the same bits
};

// Exact, error-bounded, and QSGD with 8 bits, on communicators that are made for it.
absl::StatusOr<std::vector<Run>> StackWithEach(const Settings& settings,
                                               const spccl::bench::Daemons& daemons);

}  // namespace image_stacking
