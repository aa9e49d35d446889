// The threads, one a GPU, that give memory back to the driver, which waits for what the GPU does,
// and with it for ranks that its streams wait for; on a GPU that has stuck for ever.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "collective/runtime/cuda/gpus.h"

namespace spccl::daemon {

class GpuCloser {
 public:
  GpuCloser();
  // Does what is left, whatever it waits for, then ends. Nobody defers any more.
  ~GpuCloser();

  // Runs `close` on the GPU's closing thread, in a moment in which no stream of the GPU waits for a
  // rank, or once the GPU has failed. It holds up the others of this GPU that are to be closed, and
  // nothing else. The GPU outlives this. Thread-safe; waits for none of them.
  void Defer(const runtime::Gpu& gpu, std::function<void()> close);

 private:
  class Queue;

  std::mutex mutex_;
  std::map<const runtime::Gpu*, std::unique_ptr<Queue>> queues_;
};

}  // namespace spccl::daemon
