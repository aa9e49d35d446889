// The threads, one a GPU, that give memory back to the driver, which waits for what the GPU does,
// and with it for ranks that its streams wait for; on a GPU that has stuck for ever.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collective/runtime/cuda/gpus.h"

namespace spccl::daemon {

class GpuCloser {
 public:
  // The GPUs outlive this.
  explicit GpuCloser(runtime::Gpus& gpus);
  // Does what is left, whatever it waits for, then ends. Nobody defers any more.
  ~GpuCloser();

  // Runs `close` on the GPU's closing thread, in a moment in which no stream of the GPU waits for a
  // rank, or once the GPU has failed. It holds up the others of this GPU that are to be closed, and
  // nothing else. Thread-safe; waits for none of them.
  void Defer(const runtime::Gpu& gpu, std::function<void()> close);

 private:
  class Queue;

  std::vector<std::unique_ptr<Queue>> queues_;  // by the GPU's index
};

}  // namespace spccl::daemon
