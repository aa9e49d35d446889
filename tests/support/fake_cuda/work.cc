// What streams do: copies, stream memory operations, host functions and kernels.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/futex.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/process.h"
#include "tests/support/fake_cuda/stream.h"

namespace spccl::fake_cuda {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): a driver is made of its names

// How long a wait for a value may miss a store by which nobody is woken: another process's CPU's.
constexpr int64_t kRecheckNs = 500'000;

std::atomic<bool> one_host_function_at_a_time{false};
std::atomic<uint64_t> host_functions{0};

void RunHostFunction(HostFn function, void* user_data) {
  static std::mutex mutex;
  std::unique_lock lock(mutex, std::defer_lock);
  if (one_host_function_at_a_time) lock.lock();
  ++host_functions;
  function(user_data);
}

std::atomic<uint32_t>* Word(DevicePtr pointer) {
  return static_cast<std::atomic<uint32_t>*>(arena().Here(pointer));
}

// Within work: whether the range is reached; if it is not, breaks the context.
bool Touch(ContextHandle& context, DevicePtr pointer, size_t bytes, Access access,
           const char* what) {
  const Inside inside;
  std::string why;
  {
    const Lock lock(process().mutex);
    if (Reaches(context, pointer, bytes, access, &why)) return true;
  }
  Crash(context,
        std::string(what) + " on device " + std::to_string(context.device) + " touches " + why);
  return false;
}

void Copy(ContextHandle& context, DevicePtr to, DevicePtr from, size_t bytes) {
  if (!Touch(context, from, bytes, Access::kCopy, "a copy") ||
      !Touch(context, to, bytes, Access::kCopy, "a copy")) {
    return;
  }
  std::memmove(arena().Here(to), arena().Here(from), bytes);
}

void Set(ContextHandle& context, DevicePtr to, unsigned char value, size_t bytes) {
  if (!Touch(context, to, bytes, Access::kKernel, "a memset")) return;
  std::memset(arena().Here(to), value, bytes);
}

// All that the stream did before is seen by whoever sees the value.
void WriteValue(ContextHandle& context, DevicePtr word, uint32_t value) {
  if (!Touch(context, word, sizeof(value), Access::kKernel, "a value's write")) return;
  Word(word)->store(value, std::memory_order_release);
  FutexWakeAll(Word(word));
}

// What follows in the stream sees all that was done before the value was written.
void WaitValue(ContextHandle& context, DevicePtr word, uint32_t value, unsigned flags) {
  if (!Touch(context, word, sizeof(value), Access::kKernel, "a wait for a value")) return;
  while (context.broken.load(std::memory_order_relaxed) == kSuccess) {
    const uint32_t seen = Word(word)->load(std::memory_order_acquire);
    const bool reached =
        flags == kStreamWaitValueEq ? seen == value : static_cast<int32_t>(seen - value) >= 0;
    if (reached) return;
    FutexWait(Word(word), seen, kRecheckNs);
  }
}

// What can be known of a stream memory operation when it is enqueued.
Result CheckWord(const StreamHandle& stream, DevicePtr word) {
  if (word % sizeof(uint32_t) != 0) {
    return Misuse(kErrorInvalidValue, "a stream memory operation on a word that is not aligned");
  }
  std::string why;
  if (Reaches(*stream.context, word, sizeof(uint32_t), Access::kKernel, &why)) return kSuccess;
  return Misuse(kErrorInvalidValue, "a stream memory operation on " + why);
}

// Pageable memory is copied when the driver is called, as far as the host can tell.
Result CopyPageable(StreamHandle& stream, DevicePtr to, DevicePtr from, size_t bytes, Lock& lock) {
  if (IsPageable(from)) {
    // The caller may use it again at once.
    auto staged = std::make_shared<std::vector<char>>(bytes);
    {
      const Outside outside;
      std::memcpy(staged->data(), reinterpret_cast<const void*>(from), bytes);
    }
    const Result result = Enqueue(stream, [to, staged](ContextHandle& context) {
      if (!Touch(context, to, staged->size(), Access::kCopy, "a copy")) return;
      std::memcpy(arena().Here(to), staged->data(), staged->size());
    });
    if (result != kSuccess || !IsPageable(to)) return result;
    return Await(*stream.context, stream.last, lock);
  }
  const Result result = Enqueue(
      stream, [to, from, bytes](ContextHandle& context) { Copy(context, to, from, bytes); });
  return result == kSuccess ? Await(*stream.context, stream.last, lock) : result;
}

}  // namespace
}  // namespace spccl::fake_cuda

namespace spccl::cuda {

using fake_cuda::CallOn;
using fake_cuda::Enqueue;
using fake_cuda::Lock;
using fake_cuda::Misuse;

SPCCL_FAKE_EXPORT Result cuMemcpyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  return CallOn("cuMemcpyAsync", stream, [&](StreamHandle& found, Lock& lock) -> Result {
    if (bytes == 0) return kSuccess;
    if (to == 0 || from == 0) return kErrorInvalidValue;
    const bool pageable = fake_cuda::IsPageable(to) || fake_cuda::IsPageable(from);
    if (pageable && found.capture == nullptr) {
      return fake_cuda::CopyPageable(found, to, from, bytes, lock);
    }
    return Enqueue(found,
                   [=](ContextHandle& context) { fake_cuda::Copy(context, to, from, bytes); });
  });
}

SPCCL_FAKE_EXPORT Result cuMemsetD8Async(DevicePtr to, unsigned char value, size_t bytes,
                                         Stream stream) {
  return CallOn("cuMemsetD8Async", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (bytes == 0) return kSuccess;
    return Enqueue(found,
                   [=](ContextHandle& context) { fake_cuda::Set(context, to, value, bytes); });
  });
}

SPCCL_FAKE_EXPORT Result cuStreamWriteValue32_v2(Stream stream, DevicePtr word, uint32_t value,
                                                 unsigned flags) {
  return CallOn("cuStreamWriteValue32_v2", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (flags != kStreamWriteValueDefault) return kErrorNotSupported;
    if (const Result bad = fake_cuda::CheckWord(found, word); bad != kSuccess) return bad;
    return Enqueue(found,
                   [=](ContextHandle& context) { fake_cuda::WriteValue(context, word, value); });
  });
}

SPCCL_FAKE_EXPORT Result cuStreamWaitValue32_v2(Stream stream, DevicePtr word, uint32_t value,
                                                unsigned flags) {
  return CallOn("cuStreamWaitValue32_v2", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (flags != kStreamWaitValueGeq && flags != kStreamWaitValueEq) return kErrorNotSupported;
    if (const Result bad = fake_cuda::CheckWord(found, word); bad != kSuccess) return bad;
    return Enqueue(
        found, [=](ContextHandle& context) { fake_cuda::WaitValue(context, word, value, flags); });
  });
}

SPCCL_FAKE_EXPORT Result cuLaunchHostFunc(Stream stream, HostFn function, void* user_data) {
  return CallOn("cuLaunchHostFunc", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (function == nullptr) return kErrorInvalidValue;
    return Enqueue(found, [=](ContextHandle&) { fake_cuda::RunHostFunction(function, user_data); });
  });
}

}  // namespace spccl::cuda

using spccl::cuda::ContextHandle;
using spccl::cuda::Result;
using spccl::cuda::StreamHandle;

SPCCL_FAKE_EXPORT Result spcclFakeLaunch(spccl::cuda::Stream stream, void (*function)(void*),
                                         void* argument, void (*drop)(void*)) {
  namespace fake = spccl::fake_cuda;
  bool taken = false;
  const auto launch = [&](StreamHandle& found, fake::Lock&) -> Result {
    if (found.context != fake::Current()) {
      return fake::Misuse(spccl::cuda::kErrorInvalidHandle,
                          "a launch on a stream whose context is not current");
    }
    taken = true;
    // This thread keeps no share of it: that would order it with the stream's.
    std::shared_ptr<void> kept(argument, [drop](void* dropped) {
      if (drop != nullptr) drop(dropped);
    });
    return fake::Enqueue(
        found, [function, kept = std::move(kept)](ContextHandle&) { function(kept.get()); });
  };
  const Result result = fake::CallOn("spcclFakeLaunch", stream, launch);
  if (!taken && drop != nullptr) drop(argument);
  return result;
}

SPCCL_FAKE_EXPORT void spcclFakeOneHostFunctionAtATime(int on) {
  spccl::fake_cuda::one_host_function_at_a_time = on != 0;
}

SPCCL_FAKE_EXPORT uint64_t spcclFakeHostFunctions() {
  return spccl::fake_cuda::host_functions;
}

SPCCL_FAKE_EXPORT void* spcclFakeReach(spccl::cuda::DevicePtr pointer, size_t bytes) {
  namespace fake = spccl::fake_cuda;
  ContextHandle* const context = fake::this_thread().running;
  const bool reached = context != nullptr &&
                       fake::Touch(*context, pointer, bytes, fake::Access::kKernel, "a kernel");
  return reached ? fake::arena().Here(pointer) : nullptr;
}

SPCCL_FAKE_EXPORT int spcclFakeKernelDevice() {
  const ContextHandle* const context = spccl::fake_cuda::this_thread().running;
  return context == nullptr ? -1 : context->device;
}

SPCCL_FAKE_EXPORT void* spcclFakeHere(spccl::cuda::DevicePtr pointer) {
  return spccl::fake_cuda::arena().Here(pointer);
}
