// Rates of kernels that were measured on a GPU, from a benchmark's lines.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/model/kernel_rates.h"
#include "kernels/dtype.h"

namespace spccl::bench::model {

// Puts what `text` has, lines of gpu-codec-bench --json (bench/gpu/report.h), in place of the
// floors in *rates. Of each line the keys are read: operation (encode, decode, reduce-into or
// fused), format, dtype, sparsity, gbps (10^9 bytes of dense elements in a second; 0: not
// measured), and where they are there bytes and copy_seconds, which give the memory's rate. Of
// several at one sparsity the last counts. Other lines, and those of another type, are passed over.
// Returns how many were taken; an error names the line.
absl::StatusOr<int> AddMeasured(std::string_view text, DType dtype, KernelRates* rates);

}  // namespace spccl::bench::model
