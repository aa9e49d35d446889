#include "collective/policy/tuning.h"

#include <algorithm>
#include <cmath>

namespace spccl::policy {
namespace {

constexpr double Costs::*kFields[kCostCount] = {
    &Costs::alpha,         &Costs::link_rate,     &Costs::frame,          &Costs::cores,
    &Costs::memory_rate,   &Costs::reduce_rate,   &Costs::encode_rate_0,  &Costs::encode_rate_1,
    &Costs::decode_rate_0, &Costs::decode_rate_1, &Costs::combine_rate_0, &Costs::combine_rate_1};

}  // namespace

std::array<double, kCostCount> ToArray(const Costs& costs) {
  std::array<double, kCostCount> values;
  for (size_t i = 0; i < kCostCount; ++i) values[i] = costs.*kFields[i];
  return values;
}

std::optional<Costs> CostsFrom(std::span<const double> values) {
  if (values.size() != kCostCount) return std::nullopt;
  Costs costs;
  for (size_t i = 0; i < kCostCount; ++i) {
    if (!std::isfinite(values[i]) || values[i] <= 0) return std::nullopt;
    costs.*kFields[i] = values[i];
  }
  return costs;
}

Costs SlowerOf(const Costs& a, const Costs& b) {
  Costs slower;
  for (const auto field : kFields) slower.*field = std::min(a.*field, b.*field);
  slower.alpha = std::max(a.alpha, b.alpha);
  slower.frame = std::max(a.frame, b.frame);
  return slower;
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
