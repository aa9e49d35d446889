// The driver for the programs of tests/gpu, which link nothing: looked up in libcuda.so.1. What
// does not work ends the process with a line that says what and where.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/cuda/abi.h"

namespace spccl::gpu_test {

// What the programs end with, besides 0.
inline constexpr int kFailed = 1;
inline constexpr int kSkipped = 77;

// NOLINTBEGIN(google-runtime-int): as the driver has them
#define SPCCL_GPU_TEST_FUNCTIONS(F)                                                             \
  F(Init, cuInit, (unsigned flags))                                                             \
  F(GetErrorName, cuGetErrorName, (cuda::Result error, const char** text))                      \
  F(DeviceGetCount, cuDeviceGetCount, (int* count))                                             \
  F(DeviceGet, cuDeviceGet, (cuda::Device * device, int ordinal))                               \
  F(DeviceGetName, cuDeviceGetName, (char* name, int length, cuda::Device device))              \
  F(DeviceGetAttribute, cuDeviceGetAttribute, (int* value, int attribute, cuda::Device device)) \
  F(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain,                                           \
    (cuda::Context * context, cuda::Device device))                                             \
  F(CtxSetCurrent, cuCtxSetCurrent, (cuda::Context context))                                    \
  F(MemAlloc, cuMemAlloc_v2, (cuda::DevicePtr * pointer, size_t bytes))                         \
  F(MemFree, cuMemFree_v2, (cuda::DevicePtr pointer))                                           \
  F(MemGetAddressRange, cuMemGetAddressRange_v2,                                                \
    (cuda::DevicePtr * base, size_t * bytes, cuda::DevicePtr pointer))                          \
  F(MemHostRegister, cuMemHostRegister_v2, (void* memory, size_t bytes, unsigned flags))        \
  F(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                      \
    (cuda::DevicePtr * pointer, void* memory, unsigned flags))                                  \
  F(MemcpyAsync, cuMemcpyAsync,                                                                 \
    (cuda::DevicePtr to, cuda::DevicePtr from, size_t bytes, cuda::Stream stream))              \
  F(PointerGetAttribute, cuPointerGetAttribute,                                                 \
    (void* value, int attribute, cuda::DevicePtr pointer))                                      \
  F(IpcGetMemHandle, cuIpcGetMemHandle, (cuda::IpcMemHandle * handle, cuda::DevicePtr pointer)) \
  F(IpcOpenMemHandle, cuIpcOpenMemHandle_v2,                                                    \
    (cuda::DevicePtr * pointer, cuda::IpcMemHandle handle, unsigned flags))                     \
  F(IpcCloseMemHandle, cuIpcCloseMemHandle, (cuda::DevicePtr pointer))                          \
  F(MemCreate, cuMemCreate,                                                                     \
    (cuda::AllocationHandle * handle, size_t bytes, const cuda::MemAllocationProp* prop,        \
     unsigned long long flags))                                                                 \
  F(MemRelease, cuMemRelease, (cuda::AllocationHandle handle))                                  \
  F(MemAddressReserve, cuMemAddressReserve,                                                     \
    (cuda::DevicePtr * pointer, size_t bytes, size_t alignment, cuda::DevicePtr wish,           \
     unsigned long long flags))                                                                 \
  F(MemAddressFree, cuMemAddressFree, (cuda::DevicePtr pointer, size_t bytes))                  \
  F(MemMap, cuMemMap,                                                                           \
    (cuda::DevicePtr pointer, size_t bytes, size_t offset, cuda::AllocationHandle handle,       \
     unsigned long long flags))                                                                 \
  F(MemUnmap, cuMemUnmap, (cuda::DevicePtr pointer, size_t bytes))                              \
  F(MemSetAccess, cuMemSetAccess,                                                               \
    (cuda::DevicePtr pointer, size_t bytes, const cuda::MemAccessDesc* accesses, size_t count)) \
  F(MemGetAllocationGranularity, cuMemGetAllocationGranularity,                                 \
    (size_t * granularity, const cuda::MemAllocationProp* prop, int option))                    \
  F(MemRetainAllocationHandle, cuMemRetainAllocationHandle,                                     \
    (cuda::AllocationHandle * handle, void* pointer))                                           \
  F(MemExportToShareableHandle, cuMemExportToShareableHandle,                                   \
    (void* shareable, cuda::AllocationHandle handle, int type, unsigned long long flags))       \
  F(MemImportFromShareableHandle, cuMemImportFromShareableHandle,                               \
    (cuda::AllocationHandle * handle, void* shareable, int type))                               \
  F(StreamCreateWithPriority, cuStreamCreateWithPriority,                                       \
    (cuda::Stream * stream, unsigned flags, int priority))                                      \
  F(StreamDestroy, cuStreamDestroy_v2, (cuda::Stream stream))                                   \
  F(StreamQuery, cuStreamQuery, (cuda::Stream stream))                                          \
  F(StreamWaitValue32, cuStreamWaitValue32_v2,                                                  \
    (cuda::Stream stream, cuda::DevicePtr word, uint32_t value, unsigned flags))                \
  F(StreamWriteValue32, cuStreamWriteValue32_v2,                                                \
    (cuda::Stream stream, cuda::DevicePtr word, uint32_t value, unsigned flags))                \
  F(StreamBeginCapture, cuStreamBeginCapture_v2, (cuda::Stream stream, int mode))               \
  F(StreamEndCapture, cuStreamEndCapture, (cuda::Stream stream, cuda::Graph * graph))           \
  F(GraphInstantiate, cuGraphInstantiateWithFlags,                                              \
    (cuda::GraphExec * exec, cuda::Graph graph, unsigned long long flags))                      \
  F(GraphLaunch, cuGraphLaunch, (cuda::GraphExec exec, cuda::Stream stream))                    \
  F(GraphExecDestroy, cuGraphExecDestroy, (cuda::GraphExec exec))                               \
  F(GraphDestroy, cuGraphDestroy, (cuda::Graph graph))
// NOLINTEND(google-runtime-int)

// Who prints: a program's processes have the same output.
inline const char* role = "main";

struct Driver {
#define SPCCL_GPU_TEST_DECLARE(NAME, SYMBOL, PARAMETERS) cuda::Result(*NAME) PARAMETERS = nullptr;
  SPCCL_GPU_TEST_FUNCTIONS(SPCCL_GPU_TEST_DECLARE)
#undef SPCCL_GPU_TEST_DECLARE
};

// Ends the process where there is an argument: by --help well, by any other with 2.
inline void TakeNoArguments(int argc, char** argv, const char* program) {
  if (argc < 2) return;
  const bool asks = std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0;
  if (!asks) std::fprintf(stderr, "%s: unknown argument: %s\n", program, argv[1]);
  std::fprintf(asks ? stdout : stderr, "usage: %s\n", program);
  std::exit(asks ? 0 : 2);
}

[[noreturn]] inline void Stop(int code, const char* what, const char* why) {
  std::printf("%s: %s: %s\n", role, what, why);
  std::fflush(stdout);
  _exit(code);
}

// Loaded and initialised: call it in each process after the last fork.
inline const Driver& Cuda() {
  static const Driver driver = [] {
    Driver loaded;
    const char* const named = std::getenv("SPCCL_CUDA_LIBRARY");
    void* const library = dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
    if (library == nullptr) Stop(kSkipped, "no driver", dlerror());
#define SPCCL_GPU_TEST_LOAD(NAME, SYMBOL, PARAMETERS)                             \
  loaded.NAME = reinterpret_cast<decltype(loaded.NAME)>(dlsym(library, #SYMBOL)); \
  if (loaded.NAME == nullptr) Stop(kFailed, #SYMBOL, "the driver has no such function");
    SPCCL_GPU_TEST_FUNCTIONS(SPCCL_GPU_TEST_LOAD)
#undef SPCCL_GPU_TEST_LOAD
    if (loaded.Init(0) != cuda::kSuccess) Stop(kSkipped, "cuInit", "no GPU that it can use");
    int count = 0;
    if (loaded.DeviceGetCount(&count) != cuda::kSuccess || count == 0) {
      Stop(kSkipped, "cuDeviceGetCount", "no GPU");
    }
    return loaded;
  }();
  return driver;
}

inline void Must(cuda::Result result, const char* what) {
  if (result == cuda::kSuccess) return;
  const char* name = nullptr;
  Cuda().GetErrorName(result, &name);
  Stop(kFailed, what, name != nullptr ? name : "unknown error");
}
#define SPCCL_MUST(call) ::spccl::gpu_test::Must((::spccl::gpu_test::Cuda().call), #call)

inline void Expect(bool condition, const char* what) {
  if (!condition) Stop(kFailed, what, "does not hold");
}

// The first GPU's context becomes the thread's.
inline cuda::Device UseFirstGpu() {
  cuda::Device device = 0;
  cuda::Context context = nullptr;
  SPCCL_MUST(DeviceGet(&device, 0));
  SPCCL_MUST(DevicePrimaryCtxRetain(&context, device));
  SPCCL_MUST(CtxSetCurrent(context));
  return device;
}

inline int Attribute(int attribute, cuda::Device device) {
  int value = 0;
  SPCCL_MUST(DeviceGetAttribute(&value, attribute, device));
  return value;
}

// Waits until what was put on the stream is done; ends the process where that takes longer.
inline void Drain(cuda::Stream stream, const char* what,
                  std::chrono::seconds limit = std::chrono::seconds(30)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const cuda::Result result = Cuda().StreamQuery(stream);
    if (result == cuda::kSuccess) return;
    if (result != cuda::kErrorNotReady) Must(result, what);
    if (std::chrono::steady_clock::now() > deadline) Stop(kFailed, what, "is not done in time");
    std::this_thread::yield();
  }
}

// Copies between the GPU's memory and the process's, on a stream of their own; done on return.
inline void Copy(cuda::DevicePtr to, cuda::DevicePtr from, size_t bytes) {
  static const cuda::Stream stream = [] {
    cuda::Stream made = nullptr;
    SPCCL_MUST(StreamCreateWithPriority(&made, cuda::kStreamNonBlocking, 0));
    return made;
  }();
  if (bytes == 0) return;
  SPCCL_MUST(MemcpyAsync(to, from, bytes, stream));
  Drain(stream, "a copy");
}
inline void Upload(cuda::DevicePtr to, const void* from, size_t bytes) {
  Copy(to, reinterpret_cast<cuda::DevicePtr>(from), bytes);
}
inline void Download(void* to, cuda::DevicePtr from, size_t bytes) {
  Copy(reinterpret_cast<cuda::DevicePtr>(to), from, bytes);
}

}  // namespace spccl::gpu_test
