// Hands GPU memory from one process to another in both ways that spccl knows: a legacy IPC handle
// with the offset in its block, and a POSIX descriptor of memory made by cuMemCreate. The other
// process reads what was there, writes something else, and both sides take it down again.
#include <vector>

#include "tests/gpu/processes.h"

namespace spccl::gpu_test {
namespace {

constexpr size_t kWords = 1 << 18;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr size_t kInterior = 4096 + 512;  // bytes: what is handed over is not its block's beginning

void Fill(cuda::DevicePtr to, uint32_t seed) {
  std::vector<uint32_t> words(kWords);
  for (size_t i = 0; i < kWords; ++i) words[i] = seed + static_cast<uint32_t>(i) * 2654435761u;
  Upload(to, words.data(), kBytes);
}

bool Holds(cuda::DevicePtr from, uint32_t seed) {
  std::vector<uint32_t> words(kWords);
  Download(words.data(), from, kBytes);
  for (size_t i = 0; i < kWords; ++i) {
    if (words[i] != seed + static_cast<uint32_t>(i) * 2654435761u) return false;
  }
  return true;
}

struct LegacyHandle {
  cuda::IpcMemHandle handle;
  size_t offset;
};

void OwnLegacy(int socket) {
  cuda::DevicePtr block = 0;
  SPCCL_MUST(MemAlloc(&block, kInterior + kBytes));
  const cuda::DevicePtr pointer = block + kInterior;
  Fill(pointer, 1);
  // What a client asks of a pointer that it is given.
  cuda::DevicePtr base = 0;
  size_t bytes = 0;
  int capable = 0;
  uint64_t id = 0;
  SPCCL_MUST(MemGetAddressRange(&base, &bytes, pointer));
  SPCCL_MUST(PointerGetAttribute(&capable, cuda::kPointerAttributeIsLegacyCudaIpcCapable, pointer));
  SPCCL_MUST(PointerGetAttribute(&id, cuda::kPointerAttributeBufferId, pointer));
  Expect(base == block && bytes >= kInterior + kBytes, "the address range is the block");
  Expect(capable != 0, "cuMemAlloc's memory has a legacy handle");
  LegacyHandle handle = {{}, static_cast<size_t>(pointer - base)};
  SPCCL_MUST(IpcGetMemHandle(&handle.handle, base));
  cuda::DevicePtr own = 0;
  Expect(Cuda().IpcOpenMemHandle(&own, handle.handle, cuda::kIpcMemLazyEnablePeerAccess) !=
             cuda::kSuccess,
         "the maker of a handle cannot open it");
  Send(socket, &handle, sizeof(handle));
  Meet(socket);
  Expect(Holds(pointer, 2), "the owner sees what the other process wrote (legacy)");
  SPCCL_MUST(MemFree(block));
  // Memory at an address that was used before has another id.
  SPCCL_MUST(MemAlloc(&block, kInterior + kBytes));
  uint64_t next_id = 0;
  SPCCL_MUST(PointerGetAttribute(&next_id, cuda::kPointerAttributeBufferId, block));
  Expect(next_id != id, "new memory has a buffer id of its own");
  SPCCL_MUST(MemFree(block));
}

void OpenLegacy(int socket) {
  LegacyHandle handle;
  Receive(socket, &handle, sizeof(handle));
  cuda::DevicePtr base = 0;
  SPCCL_MUST(IpcOpenMemHandle(&base, handle.handle, cuda::kIpcMemLazyEnablePeerAccess));
  Expect(Holds(base + handle.offset, 1), "the other process sees what the owner wrote (legacy)");
  Fill(base + handle.offset, 2);
  SPCCL_MUST(IpcCloseMemHandle(base));
  Meet(socket);
}

cuda::MemAllocationProp ExportableOn(cuda::Device device) {
  cuda::MemAllocationProp prop = {};
  prop.type = cuda::kMemAllocationTypePinned;
  prop.requested_handle_types = cuda::kMemHandleTypePosixFileDescriptor;
  prop.location = {cuda::kMemLocationTypeDevice, device};
  return prop;
}

void MapAt(cuda::DevicePtr pointer, cuda::AllocationHandle handle, size_t bytes,
           cuda::Device device) {
  const cuda::MemAccessDesc access = {{cuda::kMemLocationTypeDevice, device},
                                      cuda::kMemAccessFlagsProtReadWrite};
  SPCCL_MUST(MemMap(pointer, bytes, 0, handle, 0));
  SPCCL_MUST(MemSetAccess(pointer, bytes, &access, 1));
}

cuda::DevicePtr Map(cuda::AllocationHandle handle, size_t bytes, cuda::Device device) {
  cuda::DevicePtr pointer = 0;
  SPCCL_MUST(MemAddressReserve(&pointer, bytes, 0, 0, 0));
  MapAt(pointer, handle, bytes, device);
  return pointer;
}

void Unmap(cuda::DevicePtr pointer, size_t bytes) {
  SPCCL_MUST(MemUnmap(pointer, bytes));
  SPCCL_MUST(MemAddressFree(pointer, bytes));
}

void OwnDescriptor(int socket, cuda::Device device) {
  const cuda::MemAllocationProp prop = ExportableOn(device);
  size_t granularity = 0;
  SPCCL_MUST(MemGetAllocationGranularity(&granularity, &prop, cuda::kMemAllocGranularityMinimum));
  const uint64_t bytes = (kInterior + kBytes + granularity - 1) / granularity * granularity;
  cuda::AllocationHandle made = 0;
  SPCCL_MUST(MemCreate(&made, bytes, &prop, 0));
  const cuda::DevicePtr base = Map(made, bytes, device);
  SPCCL_MUST(MemRelease(made));  // the mapping keeps it
  Fill(base + kInterior, 3);
  // From the pointer alone, as a client has it.
  int capable = 1;
  uint64_t types = 0;
  SPCCL_MUST(PointerGetAttribute(&capable, cuda::kPointerAttributeIsLegacyCudaIpcCapable, base));
  SPCCL_MUST(PointerGetAttribute(&types, cuda::kPointerAttributeAllowedHandleTypes, base));
  Expect(capable == 0, "cuMemCreate's memory has no legacy handle");
  Expect((types & cuda::kMemHandleTypePosixFileDescriptor) != 0, "it may be exported");
  cuda::AllocationHandle handle = 0;
  SPCCL_MUST(MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(base + kInterior)));
  int descriptor = -1;
  SPCCL_MUST(
      MemExportToShareableHandle(&descriptor, handle, cuda::kMemHandleTypePosixFileDescriptor, 0));
  SPCCL_MUST(MemRelease(handle));
  Send(socket, &bytes, sizeof(bytes), descriptor);
  close(descriptor);
  Meet(socket);
  Expect(Holds(base + kInterior, 4), "the owner sees what the other process wrote (descriptor)");
  // Other memory at the same address has another id, as segments that grow and shrink need it.
  uint64_t id = 0, next_id = 0;
  SPCCL_MUST(PointerGetAttribute(&id, cuda::kPointerAttributeBufferId, base));
  SPCCL_MUST(MemUnmap(base, bytes));
  SPCCL_MUST(MemCreate(&made, bytes, &prop, 0));
  MapAt(base, made, bytes, device);
  SPCCL_MUST(MemRelease(made));
  SPCCL_MUST(PointerGetAttribute(&next_id, cuda::kPointerAttributeBufferId, base));
  Expect(next_id != id, "memory that is mapped anew has a buffer id of its own");
  Unmap(base, bytes);
}

void OpenDescriptor(int socket, cuda::Device device) {
  uint64_t bytes = 0;
  const int descriptor = Receive(socket, &bytes, sizeof(bytes));
  Expect(descriptor >= 0, "a descriptor came along");
  cuda::AllocationHandle handle = 0;
  SPCCL_MUST(MemImportFromShareableHandle(&handle, reinterpret_cast<void*>(uintptr_t(descriptor)),
                                          cuda::kMemHandleTypePosixFileDescriptor));
  close(descriptor);
  const cuda::DevicePtr base = Map(handle, bytes, device);
  SPCCL_MUST(MemRelease(handle));
  Expect(Holds(base + kInterior, 3), "the other process sees what the owner wrote (descriptor)");
  Fill(base + kInterior, 4);
  Unmap(base, bytes);
  Meet(socket);
}

bool HasDescriptors(cuda::Device device) {
  return Attribute(cuda::kDeviceAttributeVirtualMemoryManagementSupported, device) != 0 &&
         Attribute(cuda::kDeviceAttributeHandleTypePosixFileDescriptorSupported, device) != 0;
}

void Owner(int socket) {
  const cuda::Device device = UseFirstGpu();
  OwnLegacy(socket);
  if (HasDescriptors(device)) {
    OwnDescriptor(socket, device);
  } else {
    std::printf("skipped: by descriptor (this GPU exports none)\n");
  }
}

void Opener(int socket) {
  const cuda::Device device = UseFirstGpu();
  OpenLegacy(socket);
  if (HasDescriptors(device)) OpenDescriptor(socket, device);
}

}  // namespace
}  // namespace spccl::gpu_test

int main(int argc, char** argv) {
  using namespace spccl::gpu_test;  // NOLINT(google-build-using-namespace): its own program
  TakeNoArguments(argc, argv, "gpu-ipc-test");
  RunTwo(Owner, "owner", Opener, "opener");
}
