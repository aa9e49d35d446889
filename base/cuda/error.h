// What came of a call of the CUDA driver's: told from other errors, whatever their codes.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace spccl::cuda {

inline constexpr char kErrorPayload[] = "spccl.cuda";

// Any code but OK. Annotate (base/status.h) keeps what it is; whoever makes another status of it
// decides anew.
inline absl::Status AsCudaError(absl::Status status) {
  status.SetPayload(kErrorPayload, absl::Cord());
  return status;
}

inline bool IsCudaError(const absl::Status& status) {
  return status.GetPayload(kErrorPayload).has_value();
}

}  // namespace spccl::cuda
