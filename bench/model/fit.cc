#include "bench/model/fit.h"

#include <cmath>

namespace spccl::bench::model {
namespace {

double ErrorOf(const System& system) {
  double sum = 0;
  int count = 0;
  for (const Claim& claim : Claims()) {
    if (!claim.fitted) continue;
    const double value = claim.model(system).value;
    double off = 0;
    if (value < claim.low) off = std::log(claim.low / value);
    if (value > claim.high) off = std::log(value / claim.high);
    sum += off * off;
    ++count;
  }
  return std::sqrt(sum / count);
}

// Tries all values of one of the fit's numbers; whether another than the present one is better.
bool Along(const System& system, double Fit::*number, int steps, Fit* best) {
  bool better = false;
  Fit fit = *best;
  for (int i = 1; i <= steps; ++i) {
    fit.*number = static_cast<double>(i) / steps;
    fit.error = ErrorOf(WithFit(system, fit));
    if (fit.error >= best->error - 1e-9) continue;
    *best = fit;
    better = true;
  }
  return better;
}

}  // namespace

System WithFit(System system, const Fit& fit) {
  const auto share = [&](Kernel kernel) -> double& {
    return system.kernels.shares[static_cast<size_t>(kernel)];
  };
  share(Kernel::kEncode) = share(Kernel::kCombine) = share(Kernel::kFused) = fit.encode;
  share(Kernel::kDecode) = fit.decode;
  system.overlap = fit.overlap;
  return system;
}

Fit FitToPaper(const System& system) {
  Fit best;
  best.error = ErrorOf(WithFit(system, best));
  bool better = true;
  while (better) {
    better = Along(system, &Fit::decode, 100, &best);
    better = Along(system, &Fit::encode, 100, &best) || better;
    better = Along(system, &Fit::overlap, 20, &best) || better;
  }
  return best;
}

}  // namespace spccl::bench::model
