// Results and their texts: between absl::Status inside, and spcclResult_t outside and on the wire.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/include/spccl/spccl.h"

namespace spccl::client {

// The status of a result and text that the daemon sent; ResultOf gives the same result back. A
// number that is no result is the daemon's fault: Internal.
absl::Status StatusOfWire(uint32_t result, std::string_view message);

// The result that a caller of the C API gets.
spcclResult_t ResultOfStatus(const absl::Status& status);

// A constant text for a result; never null.
const char* TextOfResult(int result);

// What a caller of the C API gets: the result, with "FUNCTION: message" kept as the calling
// thread's last error unless the status is OK.
spcclResult_t Report(const char* function, const absl::Status& status);

// The calling thread's last error, "" if there was none.
const std::string& ThreadLastError();

}  // namespace spccl::client
