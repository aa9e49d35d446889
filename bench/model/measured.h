// Rates of kernels that were measured on a GPU, from a benchmark's lines.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/model/kernel_rates.h"
#include "kernels/dtype.h"

namespace spccl::bench::model {

// Takes the place of the floors in *rates with what `text` has, a JSON object a line. Of each the
// keys are read: kernel (encode, decode, reduce_into, fused or copy), format, dtype, sparsity, and
// gbps, 10^9 bytes of dense elements in a second (of a copy: bytes copied). Of several at one
// sparsity the last counts. Other lines, and those of another type, are passed over. Returns how
// many were taken; an error names the line.
absl::StatusOr<int> AddMeasured(std::string_view text, DType dtype, KernelRates* rates);

}  // namespace spccl::bench::model
