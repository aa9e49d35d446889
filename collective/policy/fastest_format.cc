#include "collective/policy/fastest_format.h"

#include <algorithm>
#include <iterator>

#include "base/status.h"
#include "collective/policy/wire_format.h"

namespace spccl::policy {

Forecast Foresee(const Costs& costs, Format format, const Sending& what) {
  const double bytes = BytesPerElement(format, what.width, what.density);
  double encode = 0, decode = 0;  // seconds a byte of dense elements, of one thread
  if (format == Format::kDense) {
    encode = 1 / costs.memory_rate;
    decode = 1 / (what.combines ? costs.reduce_rate : costs.memory_rate);
  } else {
    const CodecRates& rates = costs.Of(format);
    encode = SecondsAByte(what.density, rates.encode_0, rates.encode_1);
    decode = what.combines ? SecondsAByte(what.density, rates.combine_0, rates.combine_1)
                           : SecondsAByte(what.density, rates.decode_0, rates.decode_1);
  }
  const bool far = what.link == Link::kInter;
  const double wire = far ? bytes / costs.link_rate : 0;
  const double copies = far ? bytes * kCopiesOnTheWay / costs.memory_rate : 0;
  const double core = (what.width * (encode + decode) + copies) / costs.cores;
  return {.format = format,
          .encode_seconds = what.width * encode,
          .wire_seconds = wire,
          .seconds = std::max(wire, core) + kNotOverlapped * std::min(wire, core)};
}

Outlook Compare(const Costs& costs, Codec codec, const Sending& what) {
  SPCCL_CHECK(codec != Codec::kDense);
  Outlook outlook{.sparse = {}, .dense = Foresee(costs, Format::kDense, what), .other_sparse = {}};
  const bool open = codec == Codec::kAuto && what.link == Link::kInter;
  if (!open) outlook.sparse = Foresee(costs, SparseFormat(codec, what.density), what);
  if (what.link == Link::kIntra) return outlook;
  Forecast all[std::size(kAutoFormats)];
  for (size_t i = 0; i < std::size(all); ++i) all[i] = Foresee(costs, kAutoFormats[i], what);
  std::stable_sort(std::begin(all), std::end(all),
                   [](const Forecast& a, const Forecast& b) { return a.seconds < b.seconds; });
  if (open) outlook.sparse = all[0];
  outlook.other_sparse = all[all[0].format == outlook.sparse.format ? 1 : 0];
  return outlook;
}

Format WireFormat(Codec codec, const Costs& costs, double width, double density) {
  if (codec == Codec::kDense) return Format::kDense;
  const Format sparse = Compare(costs, codec, {.width = width, .density = density}).sparse.format;
  return BytesPerElement(sparse, width, density) < width ? sparse : Format::kDense;
}

}  // namespace spccl::policy
