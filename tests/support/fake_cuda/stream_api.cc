// Streams and events.
#include "tests/support/fake_cuda/capture.h"
#include "tests/support/fake_cuda/process.h"
#include "tests/support/fake_cuda/stream.h"

namespace spccl::cuda {

using fake_cuda::Call;
using fake_cuda::CallOn;
using fake_cuda::CompletionPtr;
using fake_cuda::Current;
using fake_cuda::Lock;
using fake_cuda::Misuse;
using fake_cuda::Needs;
using fake_cuda::process;

namespace {

template <class F>
Result CallOnEvent(const char* symbol, Event event, F&& body) {
  return Call(symbol, Needs::kContext, [&](Lock& lock) -> Result {
    if (fake_cuda::events().count(event) == 0) {
      return Misuse(kErrorInvalidHandle, std::string(symbol) + " of an event that does not exist");
    }
    return body(*event, lock);
  });
}

Result Query(const ContextHandle& context, const CompletionPtr& completion) {
  if (const Result broken = context.broken.load(); broken != kSuccess) return broken;
  if (completion == nullptr) return kSuccess;
  if (!completion->done) return kErrorNotReady;
  fake_cuda::Rely(completion->ended);
  return kSuccess;
}

}  // namespace

SPCCL_FAKE_EXPORT Result cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  return Call("cuStreamCreateWithPriority", Needs::kContext, [&](Lock&) -> Result {
    if (stream == nullptr || (flags & ~kStreamNonBlocking) != 0) return kErrorInvalidValue;
    *stream = fake_cuda::OpenStream(*Current(), (flags & kStreamNonBlocking) == 0, true);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuStreamDestroy_v2(Stream stream) {
  return Call("cuStreamDestroy_v2", Needs::kDriver, [&](Lock&) -> Result {
    const bool own = stream != nullptr && stream != kStreamLegacy && stream != kStreamPerThread;
    if (!own || fake_cuda::streams().erase(stream) == 0) {
      return Misuse(kErrorInvalidHandle, "cuStreamDestroy of a stream that does not exist");
    }
    fake_cuda::LeaveCapture(*stream);
    stream->closing = true;  // once its work is done: nobody waits for that
    fake_cuda::Wake(*stream);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuStreamSynchronize(Stream stream) {
  return CallOn("cuStreamSynchronize", stream, [&](StreamHandle& found, Lock& lock) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(&found); unsafe != kSuccess) return unsafe;
    return fake_cuda::Await(*found.context, found.last, lock);
  });
}

SPCCL_FAKE_EXPORT Result cuStreamQuery(Stream stream) {
  return CallOn("cuStreamQuery", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(&found); unsafe != kSuccess) return unsafe;
    return Query(*found.context, found.last);
  });
}

SPCCL_FAKE_EXPORT Result cuStreamGetCtx(Stream stream, Context* context) {
  return CallOn("cuStreamGetCtx", stream, [&](StreamHandle& found, Lock&) -> Result {
    *context = found.context;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  return CallOn("cuStreamWaitEvent", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (fake_cuda::events().count(event) == 0) {
      return Misuse(kErrorInvalidHandle, "cuStreamWaitEvent for an event that does not exist");
    }
    if (event->capture != nullptr || found.capture != nullptr) {
      return fake_cuda::JoinCapture(found, *event);
    }
    if (event->recorded == nullptr) return kSuccess;
    return fake_cuda::Enqueue(found, nullptr, {event->recorded});
  });
}

SPCCL_FAKE_EXPORT Result cuEventCreate(Event* event, unsigned flags) {
  return Call("cuEventCreate", Needs::kContext, [&](Lock&) -> Result {
    if (event == nullptr) return kErrorInvalidValue;
    *event = new EventHandle{.context = Current()};
    fake_cuda::events().insert(*event);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuEventRecord(Event event, Stream stream) {
  return CallOnEvent("cuEventRecord", event, [&](EventHandle& record, Lock&) -> Result {
    Result result;
    StreamHandle* const found = fake_cuda::FindStream(stream, &result);
    if (found == nullptr) return result;
    if (found->context != record.context) {
      return Misuse(kErrorInvalidHandle, "an event recorded on a stream of another context");
    }
    record.capture = found->capture;
    record.frontier = found->frontier;
    if (found->capture != nullptr) return kSuccess;
    result = fake_cuda::Enqueue(*found, nullptr, {});
    record.recorded = found->last;
    return result;
  });
}

SPCCL_FAKE_EXPORT Result cuEventQuery(Event event) {
  return CallOnEvent("cuEventQuery", event, [&](EventHandle& found, Lock&) -> Result {
    if (found.capture != nullptr) return kErrorCapturedEvent;
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    return Query(*found.context, found.recorded);
  });
}

SPCCL_FAKE_EXPORT Result cuEventSynchronize(Event event) {
  return CallOnEvent("cuEventSynchronize", event, [&](EventHandle& found, Lock& lock) -> Result {
    if (found.capture != nullptr) return kErrorCapturedEvent;
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    return fake_cuda::Await(*found.context, found.recorded, lock);
  });
}

SPCCL_FAKE_EXPORT Result cuEventDestroy_v2(Event event) {
  return Call("cuEventDestroy_v2", Needs::kDriver, [&](Lock&) -> Result {
    if (fake_cuda::events().erase(event) == 0) {
      return Misuse(kErrorInvalidHandle, "cuEventDestroy of an event that does not exist");
    }
    delete event;
    return kSuccess;
  });
}

}  // namespace spccl::cuda
