// What a program prints is printed, or it fails: a full disk must not pass for a report.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace spccl::bench {

// Writes what standard output still holds. An error: that, or something before, was not written.
absl::Status FlushOutput();

// The end of main(), with what it would return. Where not all could be printed it says so, and
// makes a failure, 2, of what went well.
int EndOutput(const std::string& program, int code);

}  // namespace spccl::bench
