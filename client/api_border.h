// What every function of the C API does: no exception leaves it, and what is wrong is kept as a
// text.
#pragma once

#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/comm.h"
#include "client/error.h"
#include "client/include/spccl/spccl.h"
#include "client/process.h"

namespace spccl::client {

// Runs one call of the API and turns its status into a result and a text.
template <typename Body>
spcclResult_t Enter(const char* function, Body body) noexcept {
  return Report(function, CatchAll(body));
}

// As Enter, for a call on a communicator, which keeps the text too.
template <typename Body>
spcclResult_t EnterComm(const char* function, spcclComm_t handle, Body body) noexcept {
  return Enter(function, [&]() -> absl::Status {
    Process& process = Process::Get();
    SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Comm> comm, process.comms().Find(handle));
    absl::Status status = CatchAll([&]() -> absl::Status { return body(process, comm); });
    if (!status.ok()) comm->SetLastError(status.message(), function);
    return status;
  });
}

inline absl::Status CheckOutput(const void* output, const char* name) {
  if (output != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is NULL"));
}

// The code behind an enumerator, read as bytes: a C caller can pass one that is none.
template <typename Enum>
uint32_t CodeOf(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t code;
  std::memcpy(&code, &value, sizeof code);
  return code;
}

}  // namespace spccl::client
