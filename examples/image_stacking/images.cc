#include "examples/image_stacking/images.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace image_stacking {
namespace {

// Ricker's wavelet.
double Wavelet(double t) {
  const double u = t * t;
  return (1 - 2 * u) * std::exp(-u);
}

// Depth of a horizon at x, both from 0 to 1; ground beyond the fault has slipped.
double DepthAt(int horizon, double x) {
  const double bend = 0.04 * std::sin(3 * x + horizon) + 0.02 * std::sin(11 * x + 2.0 * horizon);
  return 0.05 + 0.085 * horizon + bend + (x > 0.62 ? 0.03 : 0.0);
}

std::mt19937_64 StreamOf(uint64_t seed, uint32_t image) {
  std::seed_seq parts{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), image};
  return std::mt19937_64(parts);
}

}  // namespace

Image Field(size_t side) {
  constexpr int kHorizons = 11;
  constexpr double kThickness = 0.008;
  Image field(side * side);
  for (size_t column = 0; column < side; ++column) {
    const double x = static_cast<double>(column) / static_cast<double>(side);
    for (int horizon = 0; horizon < kHorizons; ++horizon) {
      const double strength = (horizon % 3 == 0 ? -1 : 0.7) * (1 - 0.06 * horizon);
      const double depth = DepthAt(horizon, x);
      for (size_t row = 0; row < side; ++row) {
        const double t =
            (static_cast<double>(row) / static_cast<double>(side) - depth) / kThickness;
        if (std::fabs(t) < 5) {
          field[row * side + column] += static_cast<float>(strength * Wavelet(t));
        }
      }
    }
  }
  return field;
}

Image Noisy(const Image& field, double deviation, uint64_t seed, uint32_t image) {
  std::mt19937_64 stream = StreamOf(seed, image);
  std::normal_distribution<float> noise(0, static_cast<float>(deviation));
  Image noisy = field;
  if (deviation == 0) return noisy;
  for (float& pixel : noisy) pixel += noise(stream);
  return noisy;
}

Stack ExactStack(const Image& field, double deviation, uint64_t seed, uint32_t count) {
  Stack stack{.mean = std::vector<double>(field.size())};
  for (uint32_t image = 0; image < count; ++image) {
    const Image noisy = Noisy(field, deviation, seed, image);
    for (size_t i = 0; i < noisy.size(); ++i) {
      stack.mean[i] += noisy[i];
      stack.largest = std::max(stack.largest, std::fabs(static_cast<double>(noisy[i])));
    }
  }
  for (double& pixel : stack.mean) pixel /= count;
  return stack;
}

double RoundingOfMean(uint32_t count, double largest) {
  return (count + 1) * static_cast<double>(std::numeric_limits<float>::epsilon()) * largest;
}

Quality Compare(const std::vector<double>& reference, const Image& image) {
  const auto [least, most] = std::minmax_element(reference.begin(), reference.end());
  Quality quality;
  double squares = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double distance = std::fabs(reference[i] - static_cast<double>(image[i]));
    squares += distance * distance;
    quality.largest = std::max(quality.largest, distance);
  }
  const double rmse = std::sqrt(squares / static_cast<double>(reference.size()));
  quality.nrmse = rmse / (*most - *least);
  quality.psnr_db =
      rmse == 0 ? std::numeric_limits<double>::infinity() : -20 * std::log10(quality.nrmse);
  return quality;
}

}  // namespace image_stacking
