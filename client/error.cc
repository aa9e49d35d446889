#include "client/error.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/cuda/error.h"
#include "proto/shm/result.h"

namespace spccl::client {
namespace {

std::string& LastErrorSlot() {
  thread_local std::string text;
  return text;
}

absl::StatusCode CodeOfWire(uint32_t result) {
  switch (static_cast<shm::Result>(result)) {
    case shm::Result::kSystemError:
      return absl::StatusCode::kUnavailable;
    case shm::Result::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case shm::Result::kInvalidUsage:
      return absl::StatusCode::kFailedPrecondition;
    case shm::Result::kRemoteError:
      return absl::StatusCode::kAborted;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status WithText(uint32_t result, absl::string_view text) {
  switch (static_cast<shm::Result>(result)) {
    case shm::Result::kSystemError:
    case shm::Result::kInvalidArgument:
    case shm::Result::kInvalidUsage:
    case shm::Result::kRemoteError:
    case shm::Result::kInternalError:
      return absl::Status(CodeOfWire(result), text);
    case shm::Result::kUnhandledCudaError:
      return cuda::AsCudaError(absl::InternalError(text));
    default:
      return absl::InternalError(absl::StrCat("the daemon sent result ", result, ": ", text));
  }
}

}  // namespace

absl::Status StatusOfWire(uint32_t result, std::string_view message) noexcept {
  if (result == 0) return absl::OkStatus();
  try {
    return WithText(result, absl::string_view(message.data(), message.size()));
  } catch (const std::bad_alloc&) {
    return absl::Status(CodeOfWire(result), "");
  }
}

absl::Status StatusOfException() noexcept {
  // A status without a text takes no memory.
  try {
    throw;
  } catch (const std::bad_alloc&) {
    try {
      return absl::ResourceExhaustedError("the system has refused memory");
    } catch (const std::bad_alloc&) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
  } catch (const std::exception& error) {
    try {
      return absl::InternalError(error.what());
    } catch (const std::bad_alloc&) {
      return absl::Status(absl::StatusCode::kInternal, "");
    }
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

spcclResult_t Report(const char* function, const absl::Status& status) noexcept {
  if (!status.ok()) {
    try {
      LastErrorSlot() = absl::StrCat(function, ": ", status.message());
    } catch (const std::bad_alloc&) {
      LastErrorSlot() = "out of memory";  // so short that it takes none
    }
  }
  return ResultOfStatus(status);
}

const std::string& ThreadLastError() {
  return LastErrorSlot();
}

}  // namespace spccl::client
