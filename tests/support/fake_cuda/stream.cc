#include "tests/support/fake_cuda/stream.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "tests/support/fake_cuda/capture.h"

namespace spccl::fake_cuda {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): a driver is made of its names

// Those whose threads run, also after they were destroyed.
std::set<StreamHandle*>& serving() {
  static auto* const all = new std::set<StreamHandle*>;
  return *all;
}

// An operation has ended: wakes who may have waited for it. Each waits on a condition of its own,
// since threads that all wake for every operation take more of the cores than what they run.
void WakeHeld() {
  for (StreamHandle* stream : serving()) {
    if (stream->held) Wake(*stream);
  }
  process().changed.notify_all();
}

// How long an operation is to be late.
void Delay(std::minstd_rand& random) {
  const uint64_t most = process().settings.delay_us;
  if (most > 0) ::usleep(static_cast<useconds_t>(random() % most));
}

// Runs an operation whose turn it is.
void Run(StreamHandle& stream, Operation operation) {
  ContextHandle& context = *stream.context;
  for (const CompletionPtr& before : operation.after) Rely(before->ended);
  Rely(operation.completion->enqueued);
  {
    const Outside outside;
    this_thread().running = &context;
    if (operation.work != nullptr && context.broken.load() == kSuccess) (*operation.work)(context);
    operation.work.reset();  // may call what tests have given to be called at the end
    this_thread().running = nullptr;
  }
  Promise(operation.completion->ended);
}

void Serve(StreamHandle* stream) {
  const Inside inside;
  Process& state = process();
  std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream) >> 4));
  Lock lock(state.mutex);
  while (true) {
    stream->changed.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) break;
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->held = true;
    stream->changed.wait(lock, [&] {
      return stream->context->broken.load() != kSuccess ||
             std::all_of(operation.after.begin(), operation.after.end(),
                         [](const CompletionPtr& before) { return before->done; });
    });
    stream->held = false;
    if (++state.begun == state.settings.stuck) {
      stream->changed.wait(lock, [] { return false; });
    }
    const CompletionPtr completion = operation.completion;
    lock.unlock();
    Delay(random);
    Run(*stream, std::move(operation));
    lock.lock();
    completion->done = true;
    --stream->context->pending;
    WakeHeld();
  }
  serving().erase(stream);
  delete stream;
}

// A thread's stream of its own in each context: kStreamPerThread.
StreamHandle* PerThread(ContextHandle& context) {
  static thread_local std::map<ContextHandle*, StreamHandle*> mine;
  StreamHandle*& stream = mine[&context];
  if (stream == nullptr || streams().count(stream) == 0) stream = OpenStream(context, true);
  return stream;
}

// What an operation comes after because of the legacy stream, which waits for all that block, and
// for which they wait.
void AddLegacyOrder(const StreamHandle& stream, std::vector<CompletionPtr>* after) {
  const auto add = [&](const StreamHandle* other) {
    if (other->last != nullptr) after->push_back(other->last);
  };
  const StreamHandle* const legacy = stream.context->legacy;
  if (&stream != legacy) {
    if (stream.blocking) add(legacy);
    return;
  }
  for (const StreamHandle* other : streams()) {
    if (other != legacy && other->context == stream.context && other->blocking) add(other);
  }
}

}  // namespace

std::set<StreamHandle*>& streams() {
  static auto* const all = new std::set<StreamHandle*>;
  return *all;
}
std::set<EventHandle*>& events() {
  static auto* const all = new std::set<EventHandle*>;
  return *all;
}

StreamHandle* OpenStream(ContextHandle& context, bool blocking, bool is_own) {
  auto* const stream =
      new StreamHandle{.context = &context, .blocking = blocking, .is_own = is_own};
  streams().insert(stream);
  serving().insert(stream);
  // Signals are the program's.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(Serve, stream).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return stream;
}

void WakeAll(const ContextHandle& context) {
  for (StreamHandle* stream : serving()) {
    if (stream->context == &context) Wake(*stream);
  }
  process().changed.notify_all();
}

void OpenStreams(ContextHandle& context) {
  context.broken.store(kSuccess);
  context.legacy = OpenStream(context, true);
}

void CloseStreams(ContextHandle& context, Lock& lock) {
  context.broken.store(kErrorContextIsDestroyed);
  WakeAll(context);
  process().changed.wait(lock, [&] { return context.pending == 0; });
  for (auto at = streams().begin(); at != streams().end();) {
    StreamHandle* const stream = *at;
    if (stream->context != &context) {
      ++at;
      continue;
    }
    at = streams().erase(at);
    stream->closing = true;
    Wake(*stream);
  }
  context.legacy = nullptr;
}

StreamHandle* FindStream(Stream stream, Result* result) {
  *result = kSuccess;
  if (stream == nullptr || stream == kStreamLegacy) return Current()->legacy;
  if (stream == kStreamPerThread) return PerThread(*Current());
  if (streams().count(stream) > 0) {
    *result = stream->context->broken.load();
    return *result == kSuccess ? stream : nullptr;
  }
  *result = Misuse(kErrorInvalidHandle, "a stream that does not exist (any more)");
  return nullptr;
}

Result Enqueue(StreamHandle& stream, std::shared_ptr<const Work> work,
               std::vector<CompletionPtr> after) {
  if (stream.capture != nullptr) return AddNode(stream, std::move(work));
  if (const Result implicit = CheckImplicit(stream); implicit != kSuccess) return implicit;
  AddLegacyOrder(stream, &after);
  Operation operation = {std::move(work), std::move(after), std::make_shared<Completion>()};
  Promise(operation.completion->enqueued);
  stream.last = operation.completion;
  ++stream.context->pending;
  stream.queue.push_back(std::move(operation));
  Wake(stream);
  return kSuccess;
}

Result Await(const ContextHandle& context, CompletionPtr completion, Lock& lock) {
  if (completion != nullptr) {
    // By value: what the stream's last is, others may change meanwhile.
    const CompletionPtr kept = std::move(completion);
    process().changed.wait(lock, [&] { return kept->done; });
    Rely(kept->ended);
  }
  return context.broken.load();
}

void AwaitIdle(const ContextHandle& context, Lock& lock) {
  process().changed.wait(lock, [&] { return context.pending == 0; });
}

void Crash(ContextHandle& context, const std::string& what) {
  const Inside inside;
  const Result error = Misuse(kErrorIllegalAddress, what);
  Result none = kSuccess;
  const Lock lock(process().mutex);
  context.broken.compare_exchange_strong(none, error);
  WakeAll(context);
}

}  // namespace spccl::fake_cuda
