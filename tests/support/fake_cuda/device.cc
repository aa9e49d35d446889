// Devices, their primary contexts, and the names of errors.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/process.h"
#include "tests/support/fake_cuda/stream.h"

namespace spccl::cuda {

using fake_cuda::Call;
using fake_cuda::Lock;
using fake_cuda::Needs;
using fake_cuda::process;
using fake_cuda::this_thread;

namespace {

struct ErrorText {
  Result error;
  const char *name, *text;
};
constexpr ErrorText kErrorTexts[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kErrorInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kErrorOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kErrorNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kErrorDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kErrorNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kErrorInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kErrorInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kErrorPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {kErrorInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kErrorIllegalState, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed now"},
    {kErrorNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kErrorIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {kErrorPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {kErrorContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kErrorHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kErrorHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kErrorLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kErrorNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kErrorNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kErrorStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kErrorStreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kErrorUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
    {kErrorStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {kErrorDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device is busy or unavailable"},
    {kErrorEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {kErrorNvlinkUncorrectable, "CUDA_ERROR_NVLINK_UNCORRECTABLE",
     "uncorrectable NVLink error detected during the execution"},
    {kErrorNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kErrorPeerAccessNotEnabled, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
     "peer access has not been enabled"},
    {kErrorMpsClientTerminated, "CUDA_ERROR_MPS_CLIENT_TERMINATED",
     "the MPS client was terminated"},
    {kErrorStreamCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "the captures are not to be merged"},
    {kErrorStreamCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "the capture was not begun on this stream"},
    {kErrorStreamCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "the capture has not been joined"},
    {kErrorStreamCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency on work that is not captured"},
    {kErrorStreamCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "the legacy stream would be ordered with a capture"},
    {kErrorCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT", "the event was recorded in a capture"},
    {kErrorStreamCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "the capture was begun by another thread"},
};

const ErrorText* Find(Result error) {
  const auto* const found = std::find_if(std::begin(kErrorTexts), std::end(kErrorTexts),
                                         [&](const ErrorText& one) { return one.error == error; });
  return found == std::end(kErrorTexts) ? nullptr : found;
}

bool IsDevice(Device device) {
  return device >= 0 && static_cast<size_t>(device) < process().contexts.size();
}

int UsualAttribute(int attribute) {
  switch (attribute) {
    case kDeviceAttributeMultiprocessorCount:
      return 132;
    case kDeviceAttributeMaxThreadsPerMultiprocessor:
      return 2048;
    case kDeviceAttributeComputeCapabilityMajor:
      return 9;
    case kDeviceAttributeVirtualMemoryManagementSupported:
    case kDeviceAttributeHandleTypePosixFileDescriptorSupported:
      return 1;
    default:  // integrated, minor version, MPS and whatever else
      return 0;
  }
}

}  // namespace

SPCCL_FAKE_EXPORT Result cuGetErrorName(Result error, const char** text) {
  const ErrorText* const found = Find(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? kErrorInvalidValue : kSuccess;
}
SPCCL_FAKE_EXPORT Result cuGetErrorString(Result error, const char** text) {
  const ErrorText* const found = Find(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? kErrorInvalidValue : kSuccess;
}
SPCCL_FAKE_EXPORT Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

SPCCL_FAKE_EXPORT Result cuDeviceGetCount(int* count) {
  return Call("cuDeviceGetCount", Needs::kDriver, [&](Lock&) {
    *count = static_cast<int>(process().contexts.size());
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuDeviceGet(Device* device, int ordinal) {
  return Call("cuDeviceGet", Needs::kDriver, [&](Lock&) {
    if (!IsDevice(ordinal)) return kErrorInvalidDevice;
    *device = ordinal;
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuDeviceGetName(char* name, int length, Device device) {
  return Call("cuDeviceGetName", Needs::kDriver, [&](Lock&) {
    if (!IsDevice(device)) return kErrorInvalidDevice;
    if (length <= 0) return kErrorInvalidValue;
    std::snprintf(name, static_cast<size_t>(length), "Fake GPU %d",
                  process().settings.visible[device]);
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  return Call("cuDeviceGetUuid_v2", Needs::kDriver, [&](Lock&) {
    if (!IsDevice(device)) return kErrorInvalidDevice;
    std::memcpy(uuid->bytes, "spccl-fake-GPU\0", 16);
    uuid->bytes[15] = static_cast<char>(process().settings.visible[device]);
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuDeviceGetAttribute(int* value, int attribute, Device device) {
  return Call("cuDeviceGetAttribute", Needs::kDriver, [&](Lock&) {
    if (!IsDevice(device)) return kErrorInvalidDevice;
    const auto& set = process().settings.attributes;
    auto found = set.find({device, attribute});
    if (found == set.end()) found = set.find({fake_cuda::kAnyDevice, attribute});
    *value = found == set.end() ? UsualAttribute(attribute) : found->second;
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuDeviceTotalMem_v2(size_t* bytes, Device device) {
  return Call("cuDeviceTotalMem_v2", Needs::kDriver, [&](Lock&) {
    if (!IsDevice(device)) return kErrorInvalidDevice;
    *bytes = process().settings.bytes;
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  return Call("cuDeviceCanAccessPeer", Needs::kDriver, [&](Lock&) {
    if (!IsDevice(device) || !IsDevice(peer)) return kErrorInvalidDevice;
    *can = device != peer && fake_cuda::CanReachPeer(device, peer) ? 1 : 0;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  return Call("cuDevicePrimaryCtxRetain", Needs::kDriver, [&](Lock&) {
    if (!IsDevice(device)) return kErrorInvalidDevice;
    Context primary = process().contexts[device].get();
    if (primary->retained++ == 0) fake_cuda::OpenStreams(*primary);
    *context = primary;
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuDevicePrimaryCtxRelease_v2(Device device) {
  return Call("cuDevicePrimaryCtxRelease_v2", Needs::kDriver, [&](Lock& lock) {
    if (!IsDevice(device)) return kErrorInvalidDevice;
    ContextHandle& primary = *process().contexts[device];
    if (primary.retained == 0) {
      return fake_cuda::Misuse(kErrorInvalidContext, "a primary context released once too often");
    }
    if (--primary.retained > 0) return kSuccess;
    fake_cuda::CloseStreams(primary, lock);
    fake_cuda::FreeAll(primary);
    primary.peers = 0;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuCtxSetCurrent(Context context) {
  return Call("cuCtxSetCurrent", Needs::kDriver, [&](Lock&) {
    if (context != nullptr && context->retained == 0) return kErrorInvalidContext;
    auto& stack = this_thread().current;
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuCtxGetCurrent(Context* context) {
  return Call("cuCtxGetCurrent", Needs::kDriver, [&](Lock&) {
    *context = fake_cuda::Current();
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuCtxPushCurrent_v2(Context context) {
  return Call("cuCtxPushCurrent_v2", Needs::kDriver, [&](Lock&) {
    if (context == nullptr || context->retained == 0) return kErrorInvalidContext;
    this_thread().current.push_back(context);
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuCtxPopCurrent_v2(Context* context) {
  return Call("cuCtxPopCurrent_v2", Needs::kDriver, [&](Lock&) {
    auto& stack = this_thread().current;
    if (stack.empty()) return kErrorInvalidContext;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuCtxGetDevice(Device* device) {
  return Call("cuCtxGetDevice", Needs::kContext, [&](Lock&) {
    *device = fake_cuda::Current()->device;
    return kSuccess;
  });
}
SPCCL_FAKE_EXPORT Result cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  return Call("cuCtxEnablePeerAccess", Needs::kContext, [&](Lock&) {
    if (flags != 0) return kErrorInvalidValue;
    ContextHandle& current = *fake_cuda::Current();
    if (peer == nullptr || peer == &current || peer->retained == 0) return kErrorInvalidContext;
    if (!fake_cuda::CanReachPeer(current.device, peer->device)) return kErrorPeerAccessUnsupported;
    const uint64_t bit = uint64_t{1} << peer->device;
    if ((current.peers & bit) != 0) return kErrorPeerAccessAlreadyEnabled;
    current.peers |= bit;
    return kSuccess;
  });
}

}  // namespace spccl::cuda

SPCCL_FAKE_EXPORT void spcclFakeBreakDevice(spccl::cuda::Device device, spccl::cuda::Result error) {
  const spccl::fake_cuda::Inside inside;
  spccl::fake_cuda::Process& state = spccl::fake_cuda::process();
  const spccl::fake_cuda::Lock lock(state.mutex);
  if (static_cast<size_t>(device) >= state.contexts.size()) return;
  state.contexts[device]->broken.store(error);
  spccl::fake_cuda::WakeAll(*state.contexts[device]);
}
