// What a frame takes to get across a link, by its format, and which format gets there first. Pure,
// and the same on all nodes to the last bit, as choose_plan.h says. docs/adr/0014-auto.md
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "collective/policy/decision.h"
#include "collective/policy/settings.h"
#include "collective/policy/tuning.h"
#include "kernels/format.h"

namespace spccl::policy {

// Slices overlap: of the lesser of the link's and the cores' time so much is not hidden by the
// other.
inline constexpr double kNotOverlapped = 0.1;

// What a byte that goes between nodes costs the cores beside its codec, in bytes copied at
// Costs::memory_rate: into and out of the transport's segments, and of the kernel, at both ends.
// All of them find it in a cache.
inline constexpr double kCopiesOnTheWay = 2;

// Seconds a byte of dense elements takes a kernel with rates of `rate_0` and `rate_1` (CodecRates).
constexpr double SecondsAByte(double density, double rate_0, double rate_1) {
  return (1 - density) / rate_0 + density / rate_1;
}

// Whether a frame of the format can stand for a slice of `elements` elements, whatever they are,
// without loss.
constexpr bool Represents(Format format, uint64_t elements) {
  return !IsLossy(format) && elements <= kMaxFrameElements;
}

// What codec auto may take between nodes: nothing that could not stand for every slice.
inline constexpr Format kAutoFormats[] = {Format::kPici, Format::kCoo, Format::kGap};
static_assert(std::all_of(std::begin(kAutoFormats), std::end(kAutoFormats),
                          [](Format format) { return Represents(format, kMaxFrameElements); }));

// What is sent, element by element.
struct Sending {
  Link link = Link::kInter;
  double width = 4;  // bytes
  double density = 1;
  bool combines = false;  // the receiver adds it to what it has; else it stores it
};

// Seconds an element takes, as a frame of `format`: its bytes over the link (none within a node),
// and encoding, the way's copies and decoding on the cores, side by side with other slices' but for
// a tenth.
Forecast Foresee(const Costs& costs, Format format, const Sending& what);

// The fastest sparse format of those that `codec` may use; dense; and between nodes, to be told,
// the fastest other format that codec auto might have taken.
struct Outlook {
  Forecast sparse, dense;
  std::optional<Forecast> other_sparse;
};
// Requires a codec that is not kDense.
Outlook Compare(const Costs& costs, Codec codec, const Sending& what);

// What a sender with `codec` is expected to use between nodes: the sparse format, if it is smaller
// than dense; else kDense.
Format WireFormat(Codec codec, const Costs& costs, double width, double density);

}  // namespace spccl::policy
