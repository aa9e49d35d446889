// Results as they travel in completions and replies: NCCL's codes, as spcclResult_t has them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/cuda/error.h"

namespace spccl::shm {

enum class Result : uint32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,  // the CUDA driver's
  kSystemError = 2,         // the operating system refused something; or the daemon is not there
  kInternalError = 3,
  kInvalidArgument = 4,  // one argument is wrong in itself
  kInvalidUsage = 5,     // arguments or calls that do not fit together, also across ranks
  kRemoteError = 6,      // another rank, its process or its node failed
  kInProgress = 7,
};

// The code that a client sees for a status of the daemon's.
constexpr Result ResultOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return Result::kSuccess;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return Result::kInvalidArgument;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound:
      return Result::kInvalidUsage;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return Result::kRemoteError;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
      return Result::kSystemError;
    default:
      return Result::kInternalError;
  }
}

inline Result ResultOf(const absl::Status& status) {
  return cuda::IsCudaError(status) ? Result::kUnhandledCudaError : ResultOf(status.code());
}

}  // namespace spccl::shm
