// Which kernels a paper's system must have had for what it reports. Pure.
#pragma once

#include "bench/model/paper.h"

namespace spccl::bench::model {

// Shares of the memory's rate (KernelRates::shares) and System::overlap with which the fitted
// claims are met best, the rest as in a system.
struct Fit {
  double encode = 0.3;  // and combine, fused
  double decode = 0.3;
  double overlap = 0.5;
  double error = 0;  // root of the mean square of the logarithms of what is off
};

System WithFit(System system, const Fit& fit);

// By going along one of the three after the other, in steps of 0.01 (overlap: 0.05), until none
// gets better.
Fit FitToPaper(const System& system);

}  // namespace spccl::bench::model
