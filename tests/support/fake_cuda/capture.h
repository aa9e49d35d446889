// Capturing streams: what is enqueued on them becomes nodes of a graph, which is replayed later.
// All functions: with the lock held.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/process.h"
#include "tests/support/fake_cuda/stream.h"

namespace spccl::cuda {

struct UserObjectHandle {
  HostFn destroy = nullptr;
  void* data = nullptr;
  std::atomic<unsigned> references{0};
  char released = 0;  // for ThreadSanitizer
};

struct GraphHandle {
  struct Node {
    std::shared_ptr<const fake_cuda::Work> work;
    std::set<size_t> after;  // of the nodes before it
  };
  std::vector<Node> nodes;
  std::vector<std::pair<UserObject, unsigned>> users;
};

}  // namespace spccl::cuda

namespace spccl::fake_cuda {

using cuda::GraphHandle;

struct Capture {
  GraphHandle* graph = nullptr;  // until it ends
  uint64_t id = 0;
  StreamHandle* origin = nullptr;
  int mode = 0;
  std::thread::id thread;  // that began it
  Result invalid = cuda::kSuccess;
  std::set<StreamHandle*> streams;
};

// Whether a call may be made that is not safe while a stream captures, on `stream` if it is not
// null. Invalidates the capture if it may not.
Result CheckUnsafe(const StreamHandle* stream = nullptr);
// Whether something may be enqueued on a stream that does not capture, though another may be: the
// legacy stream is ordered with others.
Result CheckImplicit(const StreamHandle& stream);
// Captures instead of enqueueing.
Result AddNode(StreamHandle& stream, std::shared_ptr<const Work> work);
// `stream` waits for `event`, one of which captures or has captured.
Result JoinCapture(StreamHandle& stream, const EventHandle& event);
// A stream that is destroyed.
void LeaveCapture(StreamHandle& stream);
// That exist, including those that can be launched.
size_t CountGraphs();

}  // namespace spccl::fake_cuda
