// Threads of the library inside somebody else's process.
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace spccl::client {

// A thread with all signals blocked, so that the program's handlers run on the program's threads.
// `name`: at most 15 characters, for people.
absl::StatusOr<std::thread> StartThread(const char* name, std::function<void()> body);

}  // namespace spccl::client
