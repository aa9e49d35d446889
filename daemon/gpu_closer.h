// The thread that gives memory back to the driver, which waits for what the GPU does, and with it
// for ranks that its streams wait for.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "collective/runtime/cuda/gpus.h"

namespace spccl::daemon {

class GpuCloser {
 public:
  GpuCloser();
  // Does what is left, whatever it waits for, then ends.
  ~GpuCloser();

  // Runs `close` on the closer's thread, in a moment in which no stream of the GPU waits for a
  // rank, or once the GPU has failed. It holds up the others that are to be closed, and nothing
  // else. The GPU outlives this. Thread-safe; never blocks.
  void Defer(const runtime::Gpu& gpu, std::function<void()> close);

 private:
  struct Deferred {
    const runtime::Gpu* gpu;
    std::function<void()> close;
  };
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Deferred> deferred_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spccl::daemon
