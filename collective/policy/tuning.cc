#include "collective/policy/tuning.h"

#include <algorithm>
#include <cmath>

namespace spccl::policy {
namespace {

// In the order of kCostNames.
std::array<double*, kCostCount> FieldsOf(Costs& c) {
  std::array<double*, kCostCount> fields = {&c.alpha,       &c.link_rate,   &c.frame,      &c.cores,
                                            &c.memory_rate, &c.reduce_rate, &c.stream_rate};
  size_t i = 7;
  for (CodecRates* const r : {&c.pici, &c.coo, &c.gap}) {
    for (double* const rate :
         {&r->encode_0, &r->encode_1, &r->decode_0, &r->decode_1, &r->combine_0, &r->combine_1}) {
      fields[i++] = rate;
    }
  }
  return fields;
}

}  // namespace

std::array<double, kCostCount> ToArray(const Costs& costs) {
  Costs copy = costs;
  std::array<double, kCostCount> values;
  const auto fields = FieldsOf(copy);
  for (size_t i = 0; i < kCostCount; ++i) values[i] = *fields[i];
  return values;
}

std::optional<Costs> CostsFrom(std::span<const double> values) {
  if (values.size() != kCostCount) return std::nullopt;
  Costs costs;
  const auto fields = FieldsOf(costs);
  for (size_t i = 0; i < kCostCount; ++i) {
    if (!std::isfinite(values[i]) || values[i] <= 0) return std::nullopt;
    *fields[i] = values[i];
  }
  return costs;
}

Costs SlowerOf(const Costs& a, const Costs& b) {
  Costs slower = a, other = b;
  const auto mine = FieldsOf(slower), others = FieldsOf(other);
  for (size_t i = 0; i < kCostCount; ++i) *mine[i] = std::min(*mine[i], *others[i]);
  slower.alpha = std::max(a.alpha, b.alpha);
  slower.frame = std::max(a.frame, b.frame);
  return slower;
}

bool Tuning::operator==(const Tuning& other) const {
  if (algorithm != other.algorithm || codec != other.codec || slice_bytes != other.slice_bytes) {
    return false;
  }
  if (costs != other.costs || densities != other.densities) return false;
  if (table == nullptr || other.table == nullptr) return table == other.table;
  return table == other.table || *table == *other.table;
}

std::optional<std::array<double, kDensityCount>> DensitiesFrom(std::span<const double> values) {
  if (values.size() != kDensityCount) return std::nullopt;
  std::array<double, kDensityCount> densities;
  for (size_t i = 0; i < kDensityCount; ++i) {
    if (!(values[i] >= 0 && values[i] <= 1)) return std::nullopt;
    densities[i] = values[i];
  }
  return densities;
}

}  // namespace spccl::policy
