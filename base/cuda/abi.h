// The part of the CUDA driver's binary interface that spccl uses, written down by name and value.
//
// The driver is met at run time, where there is one (driver.h): with its interface written down
// here, every build can use a GPU and no build needs a toolkit (docs/adr/0019). Where a toolkit is
// found, tests/base/cuda/abi_test.cc compares everything here with its cuda.h. Names are cuda.h's
// without their prefix; the meaning is in the CUDA Driver API reference, under the same names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spccl::cuda {

using Result = int;  // CUresult
inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorInvalidValue = 1;
inline constexpr Result kErrorOutOfMemory = 2;
inline constexpr Result kErrorNotInitialized = 3;
inline constexpr Result kErrorDeinitialized = 4;
inline constexpr Result kErrorStubLibrary = 34;
inline constexpr Result kErrorDeviceUnavailable = 46;
inline constexpr Result kErrorNoDevice = 100;
inline constexpr Result kErrorInvalidDevice = 101;
inline constexpr Result kErrorInvalidContext = 201;
inline constexpr Result kErrorEccUncorrectable = 214;
inline constexpr Result kErrorPeerAccessUnsupported = 217;
inline constexpr Result kErrorNvlinkUncorrectable = 220;
inline constexpr Result kErrorInvalidHandle = 400;
inline constexpr Result kErrorIllegalState = 401;
inline constexpr Result kErrorNotFound = 500;
inline constexpr Result kErrorNotReady = 600;
inline constexpr Result kErrorIllegalAddress = 700;
inline constexpr Result kErrorPeerAccessAlreadyEnabled = 704;
inline constexpr Result kErrorPeerAccessNotEnabled = 705;
inline constexpr Result kErrorContextIsDestroyed = 709;
inline constexpr Result kErrorHostMemoryAlreadyRegistered = 712;
inline constexpr Result kErrorHostMemoryNotRegistered = 713;
inline constexpr Result kErrorLaunchFailed = 719;
inline constexpr Result kErrorNotPermitted = 800;
inline constexpr Result kErrorNotSupported = 801;
inline constexpr Result kErrorMpsClientTerminated = 810;
inline constexpr Result kErrorStreamCaptureUnsupported = 900;
inline constexpr Result kErrorStreamCaptureInvalidated = 901;
inline constexpr Result kErrorStreamCaptureMerge = 902;
inline constexpr Result kErrorStreamCaptureUnmatched = 903;
inline constexpr Result kErrorStreamCaptureUnjoined = 904;
inline constexpr Result kErrorStreamCaptureIsolation = 905;
inline constexpr Result kErrorStreamCaptureImplicit = 906;
inline constexpr Result kErrorCapturedEvent = 907;
inline constexpr Result kErrorStreamCaptureWrongThread = 908;
inline constexpr Result kErrorUnknown = 999;

using Device = int;
using DevicePtr = unsigned long long;  // NOLINT(google-runtime-int): as the driver has it
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphNode = struct GraphNodeHandle*;
using GraphExec = struct GraphExecHandle*;
using UserObject = struct UserObjectHandle*;
using AllocationHandle = unsigned long long;  // NOLINT(google-runtime-int)
using HostFn = void (*)(void* user_data);

struct Uuid {
  char bytes[16];
};
struct IpcMemHandle {
  char reserved[64];
};

struct MemLocation {
  int type;
  int id;
};
inline constexpr int kMemLocationTypeDevice = 1;

struct MemAllocationProp {
  int type;
  int requested_handle_types;
  MemLocation location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;  // NOLINT(google-runtime-int)
    unsigned char reserved[4];
  } alloc_flags;
};
inline constexpr int kMemAllocationTypePinned = 1;
inline constexpr int kMemHandleTypePosixFileDescriptor = 1;
inline constexpr int kMemAllocGranularityMinimum = 0;

struct MemAccessDesc {
  MemLocation location;
  int flags;
};
inline constexpr int kMemAccessFlagsProtReadWrite = 3;

// Streams and events.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kStreamWaitValueGeq = 0;
inline constexpr unsigned kStreamWaitValueEq = 1;
inline constexpr unsigned kStreamWriteValueDefault = 0;
inline constexpr int kStreamCaptureStatusNone = 0;
inline constexpr int kStreamCaptureStatusActive = 1;
inline constexpr int kStreamCaptureStatusInvalidated = 2;
inline constexpr int kStreamCaptureModeGlobal = 0;
inline constexpr int kStreamCaptureModeThreadLocal = 1;
inline constexpr int kStreamCaptureModeRelaxed = 2;
inline constexpr unsigned kUserObjectNoDestructorSync = 1;
inline constexpr unsigned kGraphUserObjectMove = 1;
// The streams that have a number instead of a handle.
inline const Stream kStreamLegacy = reinterpret_cast<Stream>(0x1);
inline const Stream kStreamPerThread = reinterpret_cast<Stream>(0x2);

// Memory.
inline constexpr unsigned kMemHostAllocPortable = 1;
inline constexpr unsigned kMemHostRegisterPortable = 1;
inline constexpr unsigned kMemHostRegisterDeviceMap = 2;
inline constexpr unsigned kIpcMemLazyEnablePeerAccess = 1;

// Attributes of pointers.
inline constexpr int kPointerAttributeContext = 1;                  // Context
inline constexpr int kPointerAttributeMemoryType = 2;               // unsigned
inline constexpr int kPointerAttributeBufferId = 7;                 // uint64_t
inline constexpr int kPointerAttributeIsManaged = 8;                // bool-like unsigned
inline constexpr int kPointerAttributeDeviceOrdinal = 9;            // int
inline constexpr int kPointerAttributeIsLegacyCudaIpcCapable = 10;  // int
inline constexpr int kPointerAttributeAllowedHandleTypes = 14;      // uint64_t, a set of bits
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

// Attributes of devices.
inline constexpr int kDeviceAttributeMultiprocessorCount = 16;
inline constexpr int kDeviceAttributeIntegrated = 18;
inline constexpr int kDeviceAttributeMaxThreadsPerMultiprocessor = 39;
inline constexpr int kDeviceAttributeComputeCapabilityMajor = 75;
inline constexpr int kDeviceAttributeComputeCapabilityMinor = 76;
inline constexpr int kDeviceAttributeVirtualMemoryManagementSupported = 102;
inline constexpr int kDeviceAttributeHandleTypePosixFileDescriptorSupported = 103;
inline constexpr int kDeviceAttributeMpsEnabled = 133;

}  // namespace spccl::cuda
