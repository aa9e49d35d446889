// What all nodes of a communicator must have alike, because it decides which plan runs. Pure data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "collective/op.h"
#include "collective/policy/plan_table.h"
#include "collective/policy/settings.h"
#include "kernels/format.h"

namespace spccl::policy {

// What one format costs one thread: bytes per second of dense float32 elements, whatever the
// frame's size. Time is linear in the density between one of 0 (rate _0) and one of 1 (rate _1).
struct CodecRates {
  double encode_0, encode_1;    // dense -> frame
  double decode_0, decode_1;    // frame -> dense
  double combine_0, combine_1;  // frame added to an input
  bool operator==(const CodecRates&) const = default;
};

// The constants of the cost model: what a daemon measures when it starts, and of its links when
// nodes meet. Of several nodes' the slowest count. Seconds and bytes per second; rates are one
// thread's.
//
// The defaults are those of a 10 Gbit/s Ethernet between machines of two cores.
struct Costs {
  double alpha = 30e-6;       // from a send of few bytes to the receiver's next step
  double link_rate = 1.15e9;  // into and out of a node, each; between nodes
  double frame = 20e-6;       // a core's work on a frame at one end, beside its elements
  double cores = 2;           // that work on an operation
  double memory_rate = 8e9;   // copying
  double reduce_rate = 5e9;   // combining a dense frame with an input
  double stream_rate = 2e10;  // bytes that all cores together read and write, side by side
  CodecRates pici = {15e9, 8e9, 20e9, 9e9, 20e9, 4e9};
  CodecRates coo = {15e9, 1.5e9, 20e9, 2e9, 30e9, 1.5e9};
  CodecRates gap = {12e9, 0.8e9, 18e9, 1.5e9, 22e9, 1e9};
  // Of a sparse format; pici-column's are taken to be pici's.
  const CodecRates& Of(Format format) const {
    return format == Format::kCoo ? coo : format == Format::kGap ? gap : pici;
  }
  bool operator==(const Costs&) const = default;
};
inline constexpr size_t kCostCount = 25;

// The name of each constant, in the order of the arrays.
inline constexpr std::array<std::string_view, kCostCount> kCostNames = {
    "alpha",         "link_rate",      "frame",          "cores",         "memory_rate",
    "reduce_rate",   "stream_rate",    "pici_encode_0",  "pici_encode_1", "pici_decode_0",
    "pici_decode_1", "pici_combine_0", "pici_combine_1", "coo_encode_0",  "coo_encode_1",
    "coo_decode_0",  "coo_decode_1",   "coo_combine_0",  "coo_combine_1", "gap_encode_0",
    "gap_encode_1",  "gap_decode_0",   "gap_decode_1",   "gap_combine_0", "gap_combine_1"};

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
  // What was measured to be fastest on a communicator of this shape; null: nothing was.
  std::shared_ptr<const PlanTable> table = nullptr;
  // By what they say, tables too.
  bool operator==(const Tuning& other) const;
};

// Nothing unless there are kDensityCount numbers from 0 to 1.
std::optional<std::array<double, kDensityCount>> DensitiesFrom(std::span<const double> values);

}  // namespace spccl::policy
