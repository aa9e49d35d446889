// Which sparse format gets a frame across a link first. Pure, and the same on all nodes to the last
// bit, as choose_plan.h says.
#pragma once

#include "collective/policy/settings.h"
#include "collective/policy/tuning.h"
#include "kernels/format.h"

namespace spccl::policy {

// Slices overlap: of the lesser of the link's and the cores' time so much is not hidden by the
// other.
inline constexpr double kNotOverlapped = 0.1;

// Seconds a byte of dense elements takes a kernel with rates of `rate_0` and `rate_1` (CodecRates).
constexpr double SecondsAByte(double density, double rate_0, double rate_1) {
  return (1 - density) / rate_0 + density / rate_1;
}

// Seconds an element takes, of `width` bytes, as a frame of `format` at `density`: its bytes over
// the link, and encoding and decoding on the cores, side by side with other slices' but for a
// tenth.
double SecondsAnElement(const Costs& costs, Format format, double width, double density);

struct FormatChoice {
  Format format, runner_up;
  double seconds, runner_up_seconds;  // an element
};
// Of pici, coo and gap.
FormatChoice FastestFormat(const Costs& costs, double width, double density);

// What a sender with `codec` is expected to use between nodes: the sparse format, if it is smaller
// than dense; else kDense.
Format WireFormat(Codec codec, const Costs& costs, double width, double density);

}  // namespace spccl::policy
