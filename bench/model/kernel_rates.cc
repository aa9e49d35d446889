#include "bench/model/kernel_rates.h"

#include <algorithm>
#include <cmath>

#include "collective/policy/wire_format.h"

namespace spccl::bench::model {
namespace {

constexpr double kSectorBytes = 32;  // what a GPU's memory reads or writes at least

double Interpolate(const std::vector<KernelRates::Point>& points, double density) {
  const auto after =
      std::lower_bound(points.begin(), points.end(), density,
                       [](const KernelRates::Point& point, double d) { return point.density < d; });
  if (after == points.begin()) return after->seconds;
  if (after == points.end()) return points.back().seconds;
  const KernelRates::Point& before = *(after - 1);
  const double way = (density - before.density) / (after->density - before.density);
  return before.seconds + way * (after->seconds - before.seconds);
}

}  // namespace

double WireShare(Format format, double width, double density) {
  return policy::BytesPerElement(format, width, density) / width;
}

double FloorBytes(Kernel kernel, Format format, double width, double density, double density_out) {
  const double frame = WireShare(format, width, density);
  switch (kernel) {
    case Kernel::kEncode:
    case Kernel::kDecode:
      return 1 + frame;
    case Kernel::kCombine:
      return frame + 2 * (1 - std::pow(1 - density, kSectorBytes / width));
    case Kernel::kFused:
      return frame + 1 + WireShare(format, width, density_out);
    case Kernel::kDense:
      break;
  }
  return 2;
}

double KernelRates::SecondsPerByte(Kernel kernel, Format format, double width, double density,
                                   double density_out) const {
  const auto found = measured.find({kernel, format});
  if (found != measured.end() && !found->second.empty()) {
    return Interpolate(found->second, density);
  }
  return FloorBytes(kernel, format, width, density, density_out) /
         (memory_rate * shares[static_cast<size_t>(kernel)]);
}

double KernelRates::DenseSecondsPerByte(double inputs) const {
  return (inputs + 1) / (memory_rate * shares[static_cast<size_t>(Kernel::kDense)]);
}

}  // namespace spccl::bench::model
