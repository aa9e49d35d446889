#include "collective/policy/density_watch.h"

#include <algorithm>

namespace spccl::policy {
namespace {

// Standard deviations of a count of nonzeros that may be chance.
constexpr double kNoise = 4;

bool AreFar(double a, double b) {
  return std::max(a, b) > std::min(a, b) * DensityWatch::kFactor;
}

}  // namespace

void DensityWatch::Saw(uint64_t nnz, uint64_t elements) {
  if (elements == 0) return;
  const double before = elements_ == 0 ? 0 : density();
  nnz_ = nnz;
  elements_ = elements;
  in_a_row_ = AreFar(before, density()) ? 1 : in_a_row_ + 1;
}

std::optional<double> DensityWatch::News(double known) const {
  if (nnz_ == 0 || in_a_row_ < wanted_ || !AreFar(density(), known)) return std::nullopt;
  const auto seen = static_cast<double>(nnz_);
  const double expected = known * static_cast<double>(elements_);
  const double off = seen - expected;
  if (off * off <= kNoise * kNoise * std::max(seen, expected)) return std::nullopt;
  return density();
}

void DensityWatch::Taken() {
  wanted_ = std::min(2 * wanted_, kMostInARow);
}

}  // namespace spccl::policy
