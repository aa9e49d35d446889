// Streams: a thread each, which runs what was enqueued in order, once the work of other streams
// that it comes after has ended. All functions: with the lock held.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/process.h"

namespace spccl::fake_cuda {

// What a stream does for an operation, on its thread, without the lock and Outside.
using Work = std::function<void(ContextHandle& context)>;

// That an operation has ended.
struct Completion {
  bool done = false;
  // What ThreadSanitizer knows the order by: who enqueued it, and who waits for it.
  char enqueued = 0;
  char ended = 0;
};
using CompletionPtr = std::shared_ptr<Completion>;

struct Operation {
  std::shared_ptr<const Work> work;  // null: it only waits
  std::vector<CompletionPtr> after;
  CompletionPtr completion;
};

struct Capture;

}  // namespace spccl::fake_cuda

namespace spccl::cuda {

struct StreamHandle {
  ContextHandle* context = nullptr;
  bool blocking = false;                 // ordered with the context's legacy stream
  bool is_own = false;                   // somebody has made it, and has to destroy it
  bool closing = false;                  // its thread ends with what it has
  bool held = false;                     // its thread waits for what other streams do
  std::condition_variable changed = {};  // whether its thread has something to do: it alone waits
  std::deque<fake_cuda::Operation> queue = {};
  fake_cuda::CompletionPtr last = {};  // of what was enqueued last; null: nothing was
  std::shared_ptr<fake_cuda::Capture> capture = {};
  std::set<size_t> frontier = {};  // of the capture: nodes that the stream's next comes after
};

struct EventHandle {
  ContextHandle* context = nullptr;
  fake_cuda::CompletionPtr recorded = {};  // null: never, which is as if it were complete
  std::shared_ptr<fake_cuda::Capture> capture = {};
  std::set<size_t> frontier = {};
};

}  // namespace spccl::cuda

namespace spccl::fake_cuda {

using cuda::EventHandle;
using cuda::StreamHandle;

// Those that exist, by which handles of others are known.
std::set<StreamHandle*>& streams();
std::set<EventHandle*>& events();

// Wakes threads: all streams' of the context, which has broken, and whoever waits for them.
void WakeAll(const ContextHandle& context);
// The stream's, whose queue or fate has changed.
inline void Wake(StreamHandle& stream) {
  stream.changed.notify_one();
}

// The context's own streams begin, and all of its streams end: what has not begun is dropped.
void OpenStreams(ContextHandle& context);
void CloseStreams(ContextHandle& context, Lock& lock);

// Starts a stream's thread.
StreamHandle* OpenStream(ContextHandle& context, bool blocking, bool is_own = false);
// The stream's, also by a number or none; nullptr: reported as misuse, `*result` is the error.
StreamHandle* FindStream(cuda::Stream stream, Result* result);
// A function of the driver on a stream: its body gets that, too.
template <class F>
Result CallOn(const char* symbol, cuda::Stream stream, F&& body) {
  return Call(symbol, Needs::kContext, [&](Lock& lock) -> Result {
    Result result;
    StreamHandle* const found = FindStream(stream, &result);
    return found == nullptr ? result : body(*found, lock);
  });
}

// Enqueues, or captures. The work runs when all before it in the stream and all of `after` has
// ended.
Result Enqueue(StreamHandle& stream, std::shared_ptr<const Work> work,
               std::vector<CompletionPtr> after = {});
inline Result Enqueue(StreamHandle& stream, Work work) {
  return Enqueue(stream, std::make_shared<const Work>(std::move(work)));
}

// Waits, and orders what the caller does after what it has waited for. Returns how the context is.
Result Await(const ContextHandle& context, CompletionPtr completion, Lock& lock);
// Waits for all that was enqueued on the context's streams; orders nothing.
void AwaitIdle(const ContextHandle& context, Lock& lock);

// Within work, without the lock: reports that the GPU touched what it may not, which breaks the
// context.
void Crash(ContextHandle& context, const std::string& what);

}  // namespace spccl::fake_cuda
