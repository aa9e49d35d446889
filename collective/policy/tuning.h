// What all nodes of a communicator must have alike, because it decides which plan runs. Pure data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "collective/op.h"
#include "collective/policy/settings.h"

namespace spccl::policy {

// The constants of the cost model: what a daemon measures when it starts. Of several nodes' the
// slowest count. Seconds and bytes per second; rates are one thread's, of dense float32 elements,
// whatever the frame's size. Between a density of 0 and one of 1, time is interpolated linearly.
//
// The defaults are those of a 10 Gbit/s Ethernet between machines of two cores.
struct Costs {
  double alpha = 30e-6;         // from a send of few bytes to the receiver's next step
  double link_rate = 1.15e9;    // into and out of a node, each; between nodes
  double frame = 6e-6;          // a core's work on a frame, beside its elements
  double cores = 2;             // that work on an operation
  double memory_rate = 8e9;     // copying
  double reduce_rate = 5e9;     // combining a dense frame with an input
  double encode_rate_0 = 9e9;   // encoding where all elements are zero
  double encode_rate_1 = 3e9;   // ... where none is
  double decode_rate_0 = 12e9;  // decoding a sparse frame
  double decode_rate_1 = 3e9;
  double combine_rate_0 = 8e9;  // combining a sparse frame with an input
  double combine_rate_1 = 2e9;
  bool operator==(const Costs&) const = default;
};
inline constexpr size_t kCostCount = 12;

// The name of each constant, in the order of the arrays.
inline constexpr std::array<std::string_view, kCostCount> kCostNames = {
    "alpha",         "link_rate",     "frame",          "cores",
    "memory_rate",   "reduce_rate",   "encode_rate_0",  "encode_rate_1",
    "decode_rate_0", "decode_rate_1", "combine_rate_0", "combine_rate_1"};

std::array<double, kCostCount> ToArray(const Costs& costs);
// Nothing unless there are kCostCount finite numbers above zero.
std::optional<Costs> CostsFrom(std::span<const double> values);
// Of two nodes' constants the slower, one by one.
Costs SlowerOf(const Costs& a, const Costs& b);

inline constexpr size_t kDensityCount = 5;  // one for each OpKind

struct Tuning {
  Algorithm algorithm = Algorithm::kAuto;  // else fixed, where it has a plan for the operation
  Codec codec = Codec::kAuto;              // what senders are expected to use; theirs to decide
  uint64_t slice_bytes = 0;                // 0: the runtime's default
  Costs costs;
  // Expected density of one rank's input, by OpKind: what was last counted. 1 until then.
  std::array<double, kDensityCount> densities = {1, 1, 1, 1, 1};
  bool operator==(const Tuning&) const = default;
};

// Nothing unless there are kDensityCount numbers from 0 to 1.
std::optional<std::array<double, kDensityCount>> DensitiesFrom(std::span<const double> values);

}  // namespace spccl::policy
