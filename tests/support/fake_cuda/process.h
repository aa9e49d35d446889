// The fake CUDA's state in this process, and what every function of the driver begins with.
//
// One lock guards everything but what a stream's work touches; callers that wait, wait on one
// condition. All that is never freed lives as long as the process: streams' threads may outlive
// main().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/driver.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/sanitizers.h"

// Every function of the driver has to be defined as base/cuda/driver.h declares it.
#define SPCCL_FAKE_DECLARE(NAME, SYMBOL, PARAMETERS) \
  extern "C" __attribute__((visibility("default"))) spccl::cuda::Result SYMBOL PARAMETERS;
namespace spccl::cuda {
SPCCL_CUDA_DRIVER_FUNCTIONS(SPCCL_FAKE_DECLARE)

// The primary context of a device: there is no other. Exists as long as the process; is destroyed
// for its users while nobody retains it.
struct ContextHandle {
  int device = 0;
  unsigned retained = 0;
  std::atomic<Result> broken{kSuccess};  // what every call returns; its streams do nothing more
  uint64_t peers = 0;                    // devices whose memory its kernels reach, a bit each
  StreamHandle* legacy = nullptr;
  size_t pending = 0;  // operations enqueued that have not ended
};
}  // namespace spccl::cuda
#undef SPCCL_FAKE_DECLARE
#define SPCCL_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace spccl::fake_cuda {

using cuda::Context;
using cuda::ContextHandle;
using cuda::DevicePtr;
using cuda::Result;
using Lock = std::unique_lock<std::mutex>;

inline constexpr int kAnyDevice = -1;

struct Settings {
  std::vector<int> visible;  // the node's number of each device
  size_t bytes = 0, granularity = 0;
  bool host_access = true;
  uint64_t delay_us = 0;
  uint64_t stuck = 0;                             // which operation never ends; 0: none
  std::map<std::pair<int, int>, int> attributes;  // by device, or kAnyDevice, and attribute
  std::vector<std::pair<int, int>> no_peers;      // by the node's numbers
};

// A call of a function that is to fail.
struct Injected {
  unsigned calls_left = 0;
  Result error = cuda::kSuccess;
};

struct Process {
  std::mutex mutex;
  std::condition_variable changed;
  bool initialised = false;
  std::atomic<pid_t> pid{0};  // that initialised it
  Settings settings;
  std::vector<std::unique_ptr<ContextHandle>> contexts;  // by device
  std::multimap<std::string, Injected> injected;         // by symbol
  uint64_t begun = 0;                                    // operations of streams
  std::atomic<uint64_t> misuses{0};
};
Process& process();

// What is true of a thread.
struct ThreadState {
  std::vector<Context> current;      // the stack of contexts
  ContextHandle* running = nullptr;  // in work of a stream: may not call the driver
};
ThreadState& this_thread();

// Reports a broken rule: ends the process, or returns `code`. With or without the lock.
Result Misuse(Result code, const std::string& rule);

enum class Needs {
  kNothing,
  kDriver,   // that it has been initialised
  kContext,  // a context, of a device that works
};
// Whether this is a child, by fork, of the process that initialised the driver: there it cannot be
// used. Its lock may be held by a thread that only the parent has.
Result CheckFork(const char* symbol);
// What keeps a call from being made.
Result Enter(const char* symbol, Needs needs);
Context Current();
// Whether `device` has access to `owner`'s memory if it is enabled.
bool CanReachPeer(int device, int owner);

// A function of the driver: what its body returns, which is called with the lock held.
template <class F>
Result Call(const char* symbol, Needs needs, F&& body) {
  const Inside inside;
  if (const Result forked = CheckFork(symbol); forked != cuda::kSuccess) return forked;
  Lock lock(process().mutex);
  const Result result = Enter(symbol, needs);
  return result == cuda::kSuccess ? body(lock) : result;
}

}  // namespace spccl::fake_cuda
