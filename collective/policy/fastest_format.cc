#include "collective/policy/fastest_format.h"

#include <algorithm>
#include <utility>

#include "collective/policy/wire_format.h"

namespace spccl::policy {

double SecondsAnElement(const Costs& costs, Format format, double width, double density) {
  const CodecRates& rates = costs.Of(format);
  const double link = BytesPerElement(format, width, density) / costs.link_rate;
  const double core = width *
                      (SecondsAByte(density, rates.encode_0, rates.encode_1) +
                       SecondsAByte(density, rates.decode_0, rates.decode_1)) /
                      costs.cores;
  return std::max(link, core) + kNotOverlapped * std::min(link, core);
}

FormatChoice FastestFormat(const Costs& costs, double width, double density) {
  FormatChoice choice{Format::kPici, Format::kCoo,
                      SecondsAnElement(costs, Format::kPici, width, density),
                      SecondsAnElement(costs, Format::kCoo, width, density)};
  const auto swap = [&choice] {
    std::swap(choice.format, choice.runner_up);
    std::swap(choice.seconds, choice.runner_up_seconds);
  };
  if (choice.runner_up_seconds < choice.seconds) swap();
  const double gap = SecondsAnElement(costs, Format::kGap, width, density);
  if (gap < choice.runner_up_seconds) {
    choice.runner_up = Format::kGap;
    choice.runner_up_seconds = gap;
    if (gap < choice.seconds) swap();
  }
  return choice;
}

Format WireFormat(Codec codec, const Costs& costs, double width, double density) {
  const Format sparse = codec == Codec::kAuto ? FastestFormat(costs, width, density).format
                                              : SparseFormat(codec, density);
  return BytesPerElement(sparse, width, density) < width ? sparse : Format::kDense;
}

}  // namespace spccl::policy
