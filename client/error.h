// Results and their texts: between absl::Status inside, and spcclResult_t outside and on the wire.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/include/spccl/spccl.h"

namespace spccl::client {

// The status of a result and text that the daemon sent; ResultOf gives the same result back. A
// number that is no result is the daemon's fault: Internal. Where there is no memory for the text,
// it has none.
absl::Status StatusOfWire(uint32_t result, std::string_view message) noexcept;

// What the exception that is being handled says: mostly that the system has refused memory.
absl::Status StatusOfException() noexcept;

// Runs `body`, which returns a status or a StatusOr; an exception becomes one. For what none may
// leave: the C API, threads, destructors; and where something that has begun must be ended.
template <typename Body>
auto CatchAll(Body body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception&) {
    return StatusOfException();
  }
}

// The result that a caller of the C API gets.
spcclResult_t ResultOfStatus(const absl::Status& status);

// A constant text for a result; never null.
const char* TextOfResult(int result);

// What a caller of the C API gets: the result, with "FUNCTION: message" kept as the calling
// thread's last error unless the status is OK.
spcclResult_t Report(const char* function, const absl::Status& status) noexcept;

// The calling thread's last error, "" if there was none.
const std::string& ThreadLastError();

}  // namespace spccl::client
