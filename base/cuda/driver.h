// The CUDA driver, met at run time: nothing of spccl links to it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/abi.h"

namespace spccl::cuda {

// Every function of the driver that spccl calls: what it is called here, the symbol that the
// library exports, and its parameters. NAME, SYMBOL, PARAMETERS.
//
// NOLINTBEGIN(google-runtime-int): as the driver has them
#define SPCCL_CUDA_DRIVER_FUNCTIONS(F)                                                           \
  F(Init, cuInit, (unsigned flags))                                                              \
  F(DriverGetVersion, cuDriverGetVersion, (int* version))                                        \
  F(GetErrorName, cuGetErrorName, (Result error, const char** text))                             \
  F(GetErrorString, cuGetErrorString, (Result error, const char** text))                         \
  F(DeviceGetCount, cuDeviceGetCount, (int* count))                                              \
  F(DeviceGet, cuDeviceGet, (Device * device, int ordinal))                                      \
  F(DeviceGetName, cuDeviceGetName, (char* name, int length, Device device))                     \
  F(DeviceGetUuid, cuDeviceGetUuid_v2, (Uuid * uuid, Device device))                             \
  F(DeviceGetAttribute, cuDeviceGetAttribute, (int* value, int attribute, Device device))        \
  F(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, Device device))                        \
  F(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int* can, Device device, Device peer))          \
  F(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (Context * context, Device device))        \
  F(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (Device device))                      \
  F(CtxSetCurrent, cuCtxSetCurrent, (Context context))                                           \
  F(CtxGetCurrent, cuCtxGetCurrent, (Context * context))                                         \
  F(CtxPushCurrent, cuCtxPushCurrent_v2, (Context context))                                      \
  F(CtxPopCurrent, cuCtxPopCurrent_v2, (Context * context))                                      \
  F(CtxGetDevice, cuCtxGetDevice, (Device * device))                                             \
  F(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (Context peer, unsigned flags))                  \
  F(MemAlloc, cuMemAlloc_v2, (DevicePtr * pointer, size_t bytes))                                \
  F(MemFree, cuMemFree_v2, (DevicePtr pointer))                                                  \
  F(MemGetInfo, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                    \
  F(MemGetAddressRange, cuMemGetAddressRange_v2,                                                 \
    (DevicePtr * base, size_t * bytes, DevicePtr pointer))                                       \
  F(MemHostAlloc, cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                 \
  F(MemFreeHost, cuMemFreeHost, (void* memory))                                                  \
  F(MemHostRegister, cuMemHostRegister_v2, (void* memory, size_t bytes, unsigned flags))         \
  F(MemHostUnregister, cuMemHostUnregister, (void* memory))                                      \
  F(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                       \
    (DevicePtr * pointer, void* memory, unsigned flags))                                         \
  F(MemcpyAsync, cuMemcpyAsync, (DevicePtr to, DevicePtr from, size_t bytes, Stream stream))     \
  F(MemsetD8Async, cuMemsetD8Async,                                                              \
    (DevicePtr to, unsigned char value, size_t bytes, Stream stream))                            \
  F(PointerGetAttribute, cuPointerGetAttribute, (void* value, int attribute, DevicePtr pointer)) \
  F(IpcGetMemHandle, cuIpcGetMemHandle, (IpcMemHandle * handle, DevicePtr pointer))              \
  F(IpcOpenMemHandle, cuIpcOpenMemHandle_v2,                                                     \
    (DevicePtr * pointer, IpcMemHandle handle, unsigned flags))                                  \
  F(IpcCloseMemHandle, cuIpcCloseMemHandle, (DevicePtr pointer))                                 \
  F(MemCreate, cuMemCreate,                                                                      \
    (AllocationHandle * handle, size_t bytes, const MemAllocationProp* prop,                     \
     unsigned long long flags))                                                                  \
  F(MemRelease, cuMemRelease, (AllocationHandle handle))                                         \
  F(MemAddressReserve, cuMemAddressReserve,                                                      \
    (DevicePtr * pointer, size_t bytes, size_t alignment, DevicePtr wish,                        \
     unsigned long long flags))                                                                  \
  F(MemAddressFree, cuMemAddressFree, (DevicePtr pointer, size_t bytes))                         \
  F(MemMap, cuMemMap,                                                                            \
    (DevicePtr pointer, size_t bytes, size_t offset, AllocationHandle handle,                    \
     unsigned long long flags))                                                                  \
  F(MemUnmap, cuMemUnmap, (DevicePtr pointer, size_t bytes))                                     \
  F(MemSetAccess, cuMemSetAccess,                                                                \
    (DevicePtr pointer, size_t bytes, const MemAccessDesc* accesses, size_t count))              \
  F(MemGetAllocationGranularity, cuMemGetAllocationGranularity,                                  \
    (size_t * granularity, const MemAllocationProp* prop, int option))                           \
  F(MemRetainAllocationHandle, cuMemRetainAllocationHandle,                                      \
    (AllocationHandle * handle, void* pointer))                                                  \
  F(MemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle,                \
    (MemAllocationProp * prop, AllocationHandle handle))                                         \
  F(MemExportToShareableHandle, cuMemExportToShareableHandle,                                    \
    (void* shareable, AllocationHandle handle, int type, unsigned long long flags))              \
  F(MemImportFromShareableHandle, cuMemImportFromShareableHandle,                                \
    (AllocationHandle * handle, void* shareable, int type))                                      \
  F(StreamCreateWithPriority, cuStreamCreateWithPriority,                                        \
    (Stream * stream, unsigned flags, int priority))                                             \
  F(StreamDestroy, cuStreamDestroy_v2, (Stream stream))                                          \
  F(StreamSynchronize, cuStreamSynchronize, (Stream stream))                                     \
  F(StreamQuery, cuStreamQuery, (Stream stream))                                                 \
  F(StreamWaitEvent, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))            \
  F(StreamIsCapturing, cuStreamIsCapturing, (Stream stream, int* status))                        \
  F(StreamGetCtx, cuStreamGetCtx, (Stream stream, Context * context))                            \
  F(StreamWaitValue32, cuStreamWaitValue32_v2,                                                   \
    (Stream stream, DevicePtr word, uint32_t value, unsigned flags))                             \
  F(StreamWriteValue32, cuStreamWriteValue32_v2,                                                 \
    (Stream stream, DevicePtr word, uint32_t value, unsigned flags))                             \
  F(LaunchHostFunc, cuLaunchHostFunc, (Stream stream, HostFn function, void* user_data))         \
  F(EventCreate, cuEventCreate, (Event * event, unsigned flags))                                 \
  F(EventRecord, cuEventRecord, (Event event, Stream stream))                                    \
  F(EventQuery, cuEventQuery, (Event event))                                                     \
  F(EventSynchronize, cuEventSynchronize, (Event event))                                         \
  F(EventDestroy, cuEventDestroy_v2, (Event event))                                              \
  F(StreamBeginCapture, cuStreamBeginCapture_v2, (Stream stream, int mode))                      \
  F(StreamEndCapture, cuStreamEndCapture, (Stream stream, Graph * graph))                        \
  F(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,                                             \
    (Stream stream, int* status, uint64_t* id, Graph* graph, const GraphNode** dependencies,     \
     size_t* count))                                                                             \
  F(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int* mode))             \
  F(GraphInstantiate, cuGraphInstantiateWithFlags,                                               \
    (GraphExec * exec, Graph graph, unsigned long long flags))                                   \
  F(GraphLaunch, cuGraphLaunch, (GraphExec exec, Stream stream))                                 \
  F(GraphExecDestroy, cuGraphExecDestroy, (GraphExec exec))                                      \
  F(GraphDestroy, cuGraphDestroy, (Graph graph))                                                 \
  F(UserObjectCreate, cuUserObjectCreate,                                                        \
    (UserObject * object, void* user_data, HostFn destroy, unsigned count, unsigned flags))      \
  F(UserObjectRelease, cuUserObjectRelease, (UserObject object, unsigned count))                 \
  F(GraphRetainUserObject, cuGraphRetainUserObject,                                              \
    (Graph graph, UserObject object, unsigned count, unsigned flags))
// NOLINTEND(google-runtime-int)

// A loaded driver. Immutable and thread-safe; the library stays loaded until the process ends, as
// unloading it is not supported. Functions are members of their own name: driver->MemAlloc(...).
class Driver {
 public:
  // Loads the library (empty: the system's, libcuda.so.1) and initialises it. NotFound: there is no
  // such library, it is none of CUDA, or it finds no GPU. Unimplemented: it finds some, but lacks a
  // function, which is named: it is too old. Unavailable: it does not work.
  static absl::StatusOr<std::shared_ptr<const Driver>> Load(const std::string& library = "");
  // Whether Load() refused a driver that is as it should be.
  static bool FoundNoGpu(const absl::Status& refusal);
  // The system's, only if this process has loaded and initialised it already; null otherwise. Costs
  // a program that uses no GPU nothing, and initialises nothing for it: one that forks before it
  // uses its GPU could not use it after.
  static std::shared_ptr<const Driver> LoadIfInUse();

  // OK, or what the driver says of `result`: "WHAT: CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
  // ResourceExhausted for memory, Unavailable for a lost device, NotFound/InvalidArgument for what
  // it was given, Internal otherwise.
  absl::Status ToStatus(Result result, std::string_view what) const;

#define SPCCL_CUDA_DECLARE(NAME, SYMBOL, PARAMETERS) Result(*NAME) PARAMETERS = nullptr;
  SPCCL_CUDA_DRIVER_FUNCTIONS(SPCCL_CUDA_DECLARE)
#undef SPCCL_CUDA_DECLARE

 private:
  Driver() = default;
};

// For fork handlers, on the thread that forks: from the first to one of the others no other thread
// loads or initialises a driver. What a fork() finds half done of that leaves the child's loader
// unusable. Whoever takes seconds is not waited for any longer: it may be waiting for the fork().
void HoldLoader();
void ReleaseLoader();
void ReleaseLoaderInChild();

// Makes a context the thread's own for the scope, and the one before it afterwards.
class ScopedContext {
 public:
  ScopedContext(const Driver& driver, Context context) : driver_(driver) {
    status_ = driver_.ToStatus(driver_.CtxPushCurrent(context), "cuCtxPushCurrent");
  }
  ~ScopedContext() {
    Context ignored;
    if (status_.ok()) (void)driver_.CtxPopCurrent(&ignored);
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const Driver& driver_;
  absl::Status status_;
};

}  // namespace spccl::cuda
