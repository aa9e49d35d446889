#include "client/error.h"

#include "absl/strings/str_cat.h"
#include "base/cuda/error.h"
#include "proto/shm/result.h"

namespace spccl::client {
namespace {

std::string& LastErrorSlot() {
  thread_local std::string text;
  return text;
}

}  // namespace

absl::Status StatusOfWire(uint32_t result, std::string_view message) {
  const absl::string_view text(message.data(), message.size());
  switch (static_cast<shm::Result>(result)) {
    case shm::Result::kSuccess:
      return absl::OkStatus();
    case shm::Result::kSystemError:
      return absl::UnavailableError(text);
    case shm::Result::kInvalidArgument:
      return absl::InvalidArgumentError(text);
    case shm::Result::kInvalidUsage:
      return absl::FailedPreconditionError(text);
    case shm::Result::kRemoteError:
      return absl::AbortedError(text);
    case shm::Result::kInternalError:
      return absl::InternalError(text);
    case shm::Result::kUnhandledCudaError:
      return cuda::AsCudaError(absl::InternalError(text));
    default:
      return absl::InternalError(absl::StrCat("the daemon sent result ", result, ": ", text));
  }
}

spcclResult_t ResultOfStatus(const absl::Status& status) {
  return static_cast<spcclResult_t>(shm::ResultOf(status));
}

const char* TextOfResult(int result) {
  switch (result) {
    case spcclSuccess:
      return "no error";
    case spcclUnhandledCudaError:
      return "unhandled cuda error";
    case spcclSystemError:
      return "system error, or the daemon is not there";
    case spcclInternalError:
      return "internal error";
    case spcclInvalidArgument:
      return "invalid argument";
    case spcclInvalidUsage:
      return "invalid usage";
    case spcclRemoteError:
      return "another rank failed, was aborted or did not come";
    case spcclInProgress:
      return "in progress";
    default:
      return "unknown result code";
  }
}

spcclResult_t Report(const char* function, const absl::Status& status) {
  if (!status.ok()) LastErrorSlot() = absl::StrCat(function, ": ", status.message());
  return ResultOfStatus(status);
}

const std::string& ThreadLastError() {
  return LastErrorSlot();
}

}  // namespace spccl::client
