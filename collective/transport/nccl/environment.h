// What a world of GPUs is given by its owner: a thread and a stream for each GPU, memory for
// frames, and a way to the other daemons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/abi.h"
#include "collective/transport/frame_pool.h"

namespace spccl::transport::nccl {

// One GPU's issuing thread, with the stream that the world's groups go to: no other world's, and
// nothing that waits for anything else. Thread-safe. Outlives the world, and for good one that was
// left behind (World::Close).
class Issuer {
 public:
  virtual ~Issuer() = default;
  // Runs `work` on the issuing thread, whose current context is the GPU's, in the order of the
  // calls.
  virtual void Post(std::function<void()> work) = 0;
  // On the issuing thread only. First of all, once the world is wanted: takes the stream.
  virtual absl::Status Open() = 0;
  virtual cuda::Stream stream() = 0;
  // `done` runs on the issuing thread once everything that is on the stream now is through, with an
  // error if the GPU failed. In the order of the calls.
  virtual void WhenDone(std::function<void(absl::Status)> done) = 0;
};

// Where frames are received into: the GPU's memory. Outlives the world and its frames.
class FrameSource {
 public:
  virtual ~FrameSource() = default;
  // A frame of at least so many bytes, of size 0. May be any number >= 0, at most the most that an
  // operation said. Called on the issuing thread.
  virtual absl::StatusOr<Frame> Take(size_t bytes) = 0;
};

// The control connections to the other daemons of the world, which are numbered by it.
class Control {
 public:
  virtual ~Control() = default;
  // Reaches the other side's World::OnControl, in the order of the calls for one node; dropped if
  // the node is down, which World::OnNodeDown says. Thread-safe; does not block, and calls nothing
  // of the world's. `node` is never this one.
  virtual void Send(uint32_t node, std::string bytes) = 0;
};

}  // namespace spccl::transport::nccl
