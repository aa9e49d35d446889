// base/cuda/abi.h and driver.h beside the toolkit's cuda.h, where there is one. All is checked by
// the compiler.
#include "base/cuda/abi.h"

// Also what is not the latest version of a function.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "base/cuda/driver.h"
#include "gtest/gtest.h"

namespace spccl::cuda {
namespace {

#define SPCCL_SAME(OURS, THEIRS) \
  static_assert(static_cast<long long>(OURS) == static_cast<long long>(THEIRS))

SPCCL_SAME(kSuccess, CUDA_SUCCESS);
SPCCL_SAME(kErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
SPCCL_SAME(kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SPCCL_SAME(kErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SPCCL_SAME(kErrorDeinitialized, CUDA_ERROR_DEINITIALIZED);
SPCCL_SAME(kErrorStubLibrary, CUDA_ERROR_STUB_LIBRARY);
SPCCL_SAME(kErrorDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
SPCCL_SAME(kErrorNoDevice, CUDA_ERROR_NO_DEVICE);
SPCCL_SAME(kErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SPCCL_SAME(kErrorInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SPCCL_SAME(kErrorEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
SPCCL_SAME(kErrorPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SPCCL_SAME(kErrorNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SPCCL_SAME(kErrorInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SPCCL_SAME(kErrorIllegalState, CUDA_ERROR_ILLEGAL_STATE);
SPCCL_SAME(kErrorNotFound, CUDA_ERROR_NOT_FOUND);
SPCCL_SAME(kErrorNotReady, CUDA_ERROR_NOT_READY);
SPCCL_SAME(kErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SPCCL_SAME(kErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SPCCL_SAME(kErrorPeerAccessNotEnabled, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
SPCCL_SAME(kErrorContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SPCCL_SAME(kErrorHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SPCCL_SAME(kErrorHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SPCCL_SAME(kErrorLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SPCCL_SAME(kErrorNotPermitted, CUDA_ERROR_NOT_PERMITTED);
SPCCL_SAME(kErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SPCCL_SAME(kErrorMpsClientTerminated, CUDA_ERROR_MPS_CLIENT_TERMINATED);
SPCCL_SAME(kErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SPCCL_SAME(kErrorStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SPCCL_SAME(kErrorStreamCaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
SPCCL_SAME(kErrorStreamCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
SPCCL_SAME(kErrorStreamCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
SPCCL_SAME(kErrorStreamCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
SPCCL_SAME(kErrorStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SPCCL_SAME(kErrorCapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
SPCCL_SAME(kErrorStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
SPCCL_SAME(kErrorUnknown, CUDA_ERROR_UNKNOWN);

SPCCL_SAME(kMemLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE);
SPCCL_SAME(kMemAllocationTypePinned, CU_MEM_ALLOCATION_TYPE_PINNED);
SPCCL_SAME(kMemHandleTypePosixFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SPCCL_SAME(kMemAllocGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SPCCL_SAME(kMemAccessFlagsProtReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

SPCCL_SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SPCCL_SAME(kEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
SPCCL_SAME(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SPCCL_SAME(kStreamWaitValueGeq, CU_STREAM_WAIT_VALUE_GEQ);
SPCCL_SAME(kStreamWaitValueEq, CU_STREAM_WAIT_VALUE_EQ);
SPCCL_SAME(kStreamWriteValueDefault, CU_STREAM_WRITE_VALUE_DEFAULT);
SPCCL_SAME(kStreamCaptureStatusNone, CU_STREAM_CAPTURE_STATUS_NONE);
SPCCL_SAME(kStreamCaptureStatusActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SPCCL_SAME(kStreamCaptureStatusInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SPCCL_SAME(kStreamCaptureModeGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
SPCCL_SAME(kStreamCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SPCCL_SAME(kStreamCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SPCCL_SAME(kUserObjectNoDestructorSync, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
SPCCL_SAME(kGraphUserObjectMove, CU_GRAPH_USER_OBJECT_MOVE);

SPCCL_SAME(kMemHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
SPCCL_SAME(kMemHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
SPCCL_SAME(kMemHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
SPCCL_SAME(kIpcMemLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

SPCCL_SAME(kPointerAttributeContext, CU_POINTER_ATTRIBUTE_CONTEXT);
SPCCL_SAME(kPointerAttributeMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SPCCL_SAME(kPointerAttributeBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SPCCL_SAME(kPointerAttributeIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SPCCL_SAME(kPointerAttributeDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SPCCL_SAME(kPointerAttributeIsLegacyCudaIpcCapable,
           CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SPCCL_SAME(kPointerAttributeAllowedHandleTypes, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
SPCCL_SAME(kMemoryTypeHost, CU_MEMORYTYPE_HOST);
SPCCL_SAME(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);

SPCCL_SAME(kDeviceAttributeMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SPCCL_SAME(kDeviceAttributeIntegrated, CU_DEVICE_ATTRIBUTE_INTEGRATED);
SPCCL_SAME(kDeviceAttributeMaxThreadsPerMultiprocessor,
           CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SPCCL_SAME(kDeviceAttributeComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SPCCL_SAME(kDeviceAttributeComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SPCCL_SAME(kDeviceAttributeVirtualMemoryManagementSupported,
           CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SPCCL_SAME(kDeviceAttributeHandleTypePosixFileDescriptorSupported,
           CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SPCCL_SAME(kDeviceAttributeMpsEnabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);

// Layouts.
#define SPCCL_SAME_FIELD(OURS, FIELD, THEIRS, FIELD_OF_THEIRS)               \
  static_assert(offsetof(OURS, FIELD) == offsetof(THEIRS, FIELD_OF_THEIRS)); \
  static_assert(sizeof(OURS::FIELD) == sizeof(THEIRS::FIELD_OF_THEIRS))

static_assert(sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(IpcMemHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(MemLocation) == sizeof(CUmemLocation));
SPCCL_SAME_FIELD(MemLocation, type, CUmemLocation, type);
SPCCL_SAME_FIELD(MemLocation, id, CUmemLocation, id);
static_assert(sizeof(MemAllocationProp) == sizeof(CUmemAllocationProp));
SPCCL_SAME_FIELD(MemAllocationProp, type, CUmemAllocationProp, type);
SPCCL_SAME_FIELD(MemAllocationProp, requested_handle_types, CUmemAllocationProp,
                 requestedHandleTypes);
SPCCL_SAME_FIELD(MemAllocationProp, location, CUmemAllocationProp, location);
SPCCL_SAME_FIELD(MemAllocationProp, win32_handle_meta_data, CUmemAllocationProp,
                 win32HandleMetaData);
SPCCL_SAME_FIELD(MemAllocationProp, alloc_flags.compression_type, CUmemAllocationProp,
                 allocFlags.compressionType);
SPCCL_SAME_FIELD(MemAllocationProp, alloc_flags.gpu_direct_rdma_capable, CUmemAllocationProp,
                 allocFlags.gpuDirectRDMACapable);
SPCCL_SAME_FIELD(MemAllocationProp, alloc_flags.usage, CUmemAllocationProp, allocFlags.usage);
SPCCL_SAME_FIELD(MemAllocationProp, alloc_flags.reserved, CUmemAllocationProp, allocFlags.reserved);
static_assert(sizeof(MemAccessDesc) == sizeof(CUmemAccessDesc));
SPCCL_SAME_FIELD(MemAccessDesc, location, CUmemAccessDesc, location);
SPCCL_SAME_FIELD(MemAccessDesc, flags, CUmemAccessDesc, flags);

// Functions: as many parameters, and each as wide and passed in the same way.
template <class T>
using Passed =
    std::conditional_t<std::is_pointer_v<T>, void*,
                       typename std::conditional_t<std::is_enum_v<T>, std::underlying_type<T>,
                                                   std::type_identity<T>>::type>;

template <class Ours, class Theirs>
constexpr bool IsPassedAlike() {
  using A = Passed<Ours>;
  using B = Passed<Theirs>;
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    return sizeof(A) == sizeof(B);
  } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
    return sizeof(A) == sizeof(B) && std::is_trivially_copyable_v<A>;
  } else {
    return std::is_same_v<A, B>;
  }
}

template <class Ours, class Theirs>
struct IsSameCall : std::false_type {};
template <class R, class... Ours, class S, class... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) struct IsSameCall<R (*)(Ours...), S (*)(Theirs...)>
    : std::bool_constant<IsPassedAlike<R, S>() && (IsPassedAlike<Ours, Theirs>() && ...)> {
};

#define SPCCL_SAME_CALL(NAME, SYMBOL, PARAMETERS) \
  static_assert(IsSameCall<decltype(Driver::NAME), decltype(&::SYMBOL)>::value, #SYMBOL);
SPCCL_CUDA_DRIVER_FUNCTIONS(SPCCL_SAME_CALL)

TEST(AbiTest, IsCudasOwn) {
  EXPECT_EQ(reinterpret_cast<CUstream>(kStreamLegacy), CU_STREAM_LEGACY);
  EXPECT_EQ(reinterpret_cast<CUstream>(kStreamPerThread), CU_STREAM_PER_THREAD);
}

}  // namespace
}  // namespace spccl::cuda
