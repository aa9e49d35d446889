#include "collective/policy/plan_table.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "kernels/dtype.h"

namespace spccl::policy {
namespace {

// Odd powers of 2^(1/4): between one class and the next.
constexpr double kQuarter = 1.189207115002721, kThreeQuarters = 1.681792830507429;
constexpr double kRootHalf = 0.7071067811865476;

}  // namespace

std::string NameOf(const Pick& pick) {
  std::string name(NameOf(pick.algorithm));
  if (pick.slice_bytes != 0) name.append("/").append(std::to_string(pick.slice_bytes));
  return name;
}

std::optional<Pick> PickFromName(std::string_view name) {
  const size_t slash = name.find('/');
  const auto algorithm = AlgorithmFromName(name.substr(0, slash));
  if (!algorithm || *algorithm == Algorithm::kAuto || *algorithm == Algorithm::kLocal) {
    return std::nullopt;
  }
  Pick pick{.algorithm = *algorithm};
  if (slash == std::string_view::npos) return pick;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + slash + 1, end, pick.slice_bytes);
  if (error != std::errc() || stop != end) return std::nullopt;
  if (pick.slice_bytes < kLeastSliceBytes || pick.slice_bytes > kMostSliceBytes) {
    return std::nullopt;
  }
  return pick;
}

uint32_t SizeClass(uint64_t bytes) {
  if (bytes == 0) return 0;
  const auto octave = static_cast<uint32_t>(std::bit_width(bytes)) - 1;
  // In [1, 2); both operands are exact for all sizes that there are.
  const double mantissa = static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << octave);
  return 2 * octave + (mantissa >= kQuarter ? 1 : 0) + (mantissa >= kThreeQuarters ? 1 : 0);
}

uint64_t BytesOfSizeClass(uint32_t size_class) {
  const uint64_t octave = uint64_t{1} << (size_class / 2);
  if (size_class % 2 == 0) return octave;
  // By the root of two, in sixteenths where that is fine enough.
  return octave < 16 ? std::max<uint64_t>(octave, octave * 3 / 2) : octave / 16 * 23;
}

uint32_t DensityClass(double density) {
  uint32_t found = 0;
  for (; density < kRootHalf && found + 1 < kDensityClasses; ++found) density *= 2;
  return found;
}

uint64_t TotalBytes(const OpDesc& op, uint32_t ranks) {
  return std::max(SendElements(op, ranks), RecvElements(op, ranks)) * SizeOf(op.dtype);
}

Pick PlanTable::Find(OpKind kind, uint64_t bytes, double density) const {
  const PlanGrid& grid = grids[static_cast<size_t>(kind)];
  const uint32_t size = SizeClass(bytes);
  if (grid.densities == 0 || size < grid.first_size) return {};
  const size_t row = size - grid.first_size;
  if (row >= grid.picks.size() / grid.densities) return {};
  return grid.picks[row * grid.densities + std::min(DensityClass(density), grid.densities - 1)];
}

}  // namespace spccl::policy
