#include "client/cuda_memory.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::client {
namespace {

using cuda::DevicePtr;

// Forgotten memory is looked up again: this only bounds what is kept of freed memory.
constexpr size_t kMostKnown = 16384;

absl::Status CannotExport(std::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("the memory cannot be handed over: ", std::string(why)));
}

// Of a pointer that the driver was asked about: it does not know it, or knows no GPU's memory yet,
// or any more. After any other error, one that sticks to the context, say, what is a GPU's must not
// be taken for the host's.
bool MeansTheHosts(cuda::Result asked) {
  return asked == cuda::kErrorInvalidValue || asked == cuda::kErrorNotInitialized ||
         asked == cuda::kErrorDeinitialized || asked == cuda::kErrorInvalidDevice ||
         asked == cuda::kErrorInvalidContext;
}

template <typename T>
bool Attribute(const cuda::Driver& driver, int attribute, uint64_t address, T* value) {
  return driver.PointerGetAttribute(value, attribute, address) == cuda::kSuccess;
}

}  // namespace

absl::Status CudaMemory::Look() {
  if (driver() != nullptr) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  if (loaded_ != nullptr) return absl::OkStatus();
  const char* const library = std::getenv("SPCCL_CUDA_LIBRARY");
  if (library == nullptr || *library == '\0') {
    loaded_ = cuda::Driver::LoadIfInUse();
  } else {
    auto loaded = cuda::Driver::Load(library);
    // Without a GPU, out of order, or in a child that was forked after the driver was in use: then
    // there is the host's memory.
    const bool is_driver =
        cuda::Driver::FoundNoGpu(loaded.status()) || absl::IsUnavailable(loaded.status());
    if (is_driver) return absl::OkStatus();
    if (!loaded.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("SPCCL_CUDA_LIBRARY is \"", library, "\": ", loaded.status().message()));
    }
    loaded_ = *std::move(loaded);
  }
  driver_.store(loaded_.get(), std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const DeviceMemory>> CudaMemory::Find(const void* data) {
  const cuda::Driver* const cuda = driver();
  const auto address = reinterpret_cast<uint64_t>(data);
  uint64_t id = 0;
  if (cuda == nullptr) return std::shared_ptr<const DeviceMemory>();
  const cuda::Result asked =
      cuda->PointerGetAttribute(&id, cuda::kPointerAttributeBufferId, address);
  if (MeansTheHosts(asked)) return std::shared_ptr<const DeviceMemory>();
  SPCCL_RETURN_IF_ERROR(cuda->ToStatus(asked, "asking whose memory a buffer is"));
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  if (found != known_.end() && (found->second == nullptr || found->second->Contains(address, 1))) {
    return found->second;
  }
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<const DeviceMemory> memory, QueryLocked(address, id));
  if (known_.size() >= kMostKnown) known_.clear();
  known_[id] = memory;
  return memory;
}

absl::StatusOr<std::shared_ptr<const DeviceMemory>> CudaMemory::QueryLocked(uint64_t address,
                                                                            uint64_t buffer_id) {
  const cuda::Driver& cuda = *driver();
  unsigned type = 0, managed = 0;
  if (!Attribute(cuda, cuda::kPointerAttributeMemoryType, address, &type) ||
      type != cuda::kMemoryTypeDevice ||
      (Attribute(cuda, cuda::kPointerAttributeIsManaged, address, &managed) && managed != 0)) {
    return std::shared_ptr<const DeviceMemory>();
  }
  auto memory = std::make_shared<DeviceMemory>();
  memory->buffer_id = buffer_id;
  SPCCL_RETURN_IF_ERROR(cuda.ToStatus(
      cuda.PointerGetAttribute(&memory->device, cuda::kPointerAttributeDeviceOrdinal, address),
      "asking for the GPU of a pointer"));
  SPCCL_ASSIGN_OR_RETURN(const cuda::Context context, ContextOfLocked(memory->device));
  const cuda::ScopedContext current(cuda, context);
  SPCCL_RETURN_IF_ERROR(current.status());
  DevicePtr base = 0;
  size_t bytes = 0;
  SPCCL_RETURN_IF_ERROR(
      cuda.ToStatus(cuda.MemGetAddressRange(&base, &bytes, address), "cuMemGetAddressRange"));
  memory->base = base;
  memory->size_bytes = bytes;
  cuda::Device device;
  SPCCL_RETURN_IF_ERROR(cuda.ToStatus(cuda.DeviceGet(&device, memory->device), "cuDeviceGet"));
  SPCCL_RETURN_IF_ERROR(cuda.ToStatus(cuda.DeviceGetUuid(&memory->gpu, device), "cuDeviceGetUuid"));
  // Older drivers do not know of these: then it is not capable.
  int ipc = 0;
  uint64_t handles = 0;
  memory->ipc_capable =
      Attribute(cuda, cuda::kPointerAttributeIsLegacyCudaIpcCapable, address, &ipc) && ipc != 0;
  memory->fd_capable =
      Attribute(cuda, cuda::kPointerAttributeAllowedHandleTypes, address, &handles) &&
      (handles & cuda::kMemHandleTypePosixFileDescriptor) != 0;
  return std::shared_ptr<const DeviceMemory>(std::move(memory));
}

absl::StatusOr<std::shared_ptr<const DeviceMemory>> CudaMemory::Next(const DeviceMemory& piece) {
  const uint64_t end = piece.base + piece.size_bytes;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a device's address
  SPCCL_ASSIGN_OR_RETURN(auto next, Find(reinterpret_cast<const void*>(end)));
  if (next == nullptr || next->base != end || next->device != piece.device) next = nullptr;
  return next;
}

absl::Status CudaMemory::CheckRange(const std::shared_ptr<const DeviceMemory>& first,
                                    uint64_t address, uint64_t bytes) {
  std::shared_ptr<const DeviceMemory> piece = first;
  while (address + bytes > piece->base + piece->size_bytes) {
    const uint64_t end = piece->base + piece->size_bytes;
    SPCCL_ASSIGN_OR_RETURN(piece, Next(*piece));
    if (piece != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes from 0x", absl::Hex(address),
                                                   " run past the end of the GPU's memory, 0x",
                                                   absl::Hex(end)));
  }
  return absl::OkStatus();
}

bool CudaMemory::IsStill(const DeviceMemory& memory) const {
  uint64_t id = 0;
  return Attribute(*driver(), cuda::kPointerAttributeBufferId, memory.base, &id) &&
         id == memory.buffer_id;
}

absl::StatusOr<cuda::Context> CudaMemory::ContextOf(int device) {
  const std::lock_guard lock(mutex_);
  return ContextOfLocked(device);
}

absl::StatusOr<cuda::Context> CudaMemory::ContextOfLocked(int device) {
  const auto found = contexts_.find(device);
  if (found != contexts_.end()) return found->second;
  cuda::Context context = nullptr;
  SPCCL_RETURN_IF_ERROR(loaded_->ToStatus(loaded_->DevicePrimaryCtxRetain(&context, device),
                                          "cuDevicePrimaryCtxRetain"));
  contexts_[device] = context;
  return context;
}

namespace {

// One piece as a descriptor.
absl::StatusOr<UniqueFd> ExportPiece(const cuda::Driver& cuda, const DeviceMemory& piece) {
  cuda::AllocationHandle handle;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a device's address, as the driver wants it
  void* const start = reinterpret_cast<void*>(piece.base);
  SPCCL_RETURN_IF_ERROR(
      cuda.ToStatus(cuda.MemRetainAllocationHandle(&handle, start), "cuMemRetainAllocationHandle"));
  int fd = -1;
  const absl::Status status = cuda.ToStatus(
      cuda.MemExportToShareableHandle(&fd, handle, cuda::kMemHandleTypePosixFileDescriptor, 0),
      "cuMemExportToShareableHandle");
  (void)cuda.MemRelease(handle);
  if (!status.ok()) return status;
  return UniqueFd(fd);
}

}  // namespace

absl::StatusOr<CudaExport> CudaMemory::Export(const DeviceMemory& first, uint64_t address,
                                              uint64_t bytes) {
  const cuda::Driver& cuda = *driver();
  SPCCL_ASSIGN_OR_RETURN(const cuda::Context context, ContextOf(first.device));
  const cuda::ScopedContext current(cuda, context);
  SPCCL_RETURN_IF_ERROR(current.status());
  CudaExport exported{.kind = shm::CudaHandleKind::kIpc,
                      .base = first.base,
                      .size_bytes = first.size_bytes,
                      .pieces = {first},
                      .descriptors = {}};
  if (first.ipc_capable && first.Contains(address, bytes)) {
    const absl::Status status =
        cuda.ToStatus(cuda.IpcGetMemHandle(&exported.handle, first.base), "cuIpcGetMemHandle");
    if (status.ok()) return exported;
    if (!first.fd_capable) return CannotExport(std::string(status.message()));
  }
  exported.kind = shm::CudaHandleKind::kDescriptors;
  while (true) {
    const DeviceMemory& piece = exported.pieces.back();
    if (!piece.fd_capable) return CannotExport("its pool allows no handles");
    if (piece.size_bytes % shm::kCudaPieceUnitBytes != 0 ||
        piece.size_bytes / shm::kCudaPieceUnitBytes > UINT32_MAX) {
      return CannotExport(absl::StrCat("a piece of ", piece.size_bytes, " bytes"));
    }
    auto descriptor = ExportPiece(cuda, piece);
    if (!descriptor.ok()) return CannotExport(std::string(descriptor.status().message()));
    exported.descriptors.push_back(*std::move(descriptor));
    const uint64_t end = exported.base + exported.size_bytes;
    if (address + bytes <= end) return exported;
    if (exported.pieces.size() == shm::kMaxCudaPieces) {
      return CannotExport(
          absl::StrCat("it consists of more than ", shm::kMaxCudaPieces, " pieces"));
    }
    SPCCL_ASSIGN_OR_RETURN(const auto next, Next(piece));
    if (next == nullptr) return CannotExport("a part of it is gone");
    exported.pieces.push_back(*next);
    exported.size_bytes += next->size_bytes;
  }
}

}  // namespace spccl::client
