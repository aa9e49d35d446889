#include "daemon/gpu_memory.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

using cuda::DevicePtr;

void LogIfFailed(const absl::Status& status) {
  if (!status.ok()) Log(LogLevel::kWarning, "gpu", std::string(status.message()));
}

// Clients' fault, whatever the driver calls it.
absl::Status NotOpened(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("GPU memory could not be opened: ", status.message()));
}

absl::StatusOr<uint64_t> OpenIpc(const cuda::Driver& driver, const GpuHandle& handle) {
  DevicePtr pointer = 0;
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.IpcOpenMemHandle(&pointer, handle.ipc, cuda::kIpcMemLazyEnablePeerAccess),
      "cuIpcOpenMemHandle"));
  DevicePtr base = 0;
  size_t bytes = 0;
  absl::Status status =
      driver.ToStatus(driver.MemGetAddressRange(&base, &bytes, pointer), "cuMemGetAddressRange");
  if (status.ok() && (pointer < base || handle.size_bytes > bytes - (pointer - base))) {
    status = absl::InvalidArgumentError(
        absl::StrCat("it has ", bytes, " bytes, not ", handle.size_bytes));
  }
  if (status.ok()) return pointer;
  (void)driver.IpcCloseMemHandle(pointer);
  return status;
}

// A descriptor's allocation, mapped at `to`.
absl::Status MapPiece(const cuda::Driver& driver, cuda::Device device, int fd, DevicePtr to,
                      uint64_t bytes) {
  cuda::AllocationHandle handle = 0;
  // The driver takes the descriptor for a pointer.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  SPCCL_RETURN_IF_ERROR(
      driver.ToStatus(driver.MemImportFromShareableHandle(&handle, shareable,
                                                          cuda::kMemHandleTypePosixFileDescriptor),
                      "cuMemImportFromShareableHandle"));
  cuda::MemAllocationProp prop{};
  absl::Status status = driver.ToStatus(driver.MemGetAllocationPropertiesFromHandle(&prop, handle),
                                        "cuMemGetAllocationPropertiesFromHandle");
  if (status.ok() &&
      (prop.location.type != cuda::kMemLocationTypeDevice || prop.location.id != device)) {
    status = absl::InvalidArgumentError("it is not on the GPU that was named");
  }
  if (status.ok()) status = driver.ToStatus(driver.MemMap(to, bytes, 0, handle, 0), "cuMemMap");
  // The mapping keeps the memory.
  (void)driver.MemRelease(handle);
  return status;
}

// Unmaps what is mapped of the pieces from the first on, and gives the addresses back.
absl::Status Unmap(const cuda::Driver& driver, DevicePtr base, uint64_t size_bytes,
                   const std::vector<uint64_t>& piece_bytes, size_t mapped) {
  DevicePtr at = base;
  absl::Status first;
  for (size_t i = 0; i < mapped; ++i) {
    const absl::Status status = driver.ToStatus(driver.MemUnmap(at, piece_bytes[i]), "cuMemUnmap");
    if (first.ok()) first = status;
    at += piece_bytes[i];
  }
  const absl::Status freed =
      driver.ToStatus(driver.MemAddressFree(base, size_bytes), "cuMemAddressFree");
  return first.ok() ? freed : first;
}

// Who may touch what is mapped of the device's: itself, and all that are used here and reach it.
// What peers are enabled for does not extend to such mappings.
absl::StatusOr<std::vector<cuda::MemAccessDesc>> AccessesTo(runtime::Gpus& gpus,
                                                            cuda::Device device) {
  const cuda::Driver& driver = *gpus.driver();
  std::vector<cuda::MemAccessDesc> accesses;
  for (size_t i = 0; i < gpus.count(); ++i) {
    if (!gpus.at(i).status().ok()) continue;
    const cuda::ScopedContext current(driver, gpus.at(i).context());
    cuda::Device from = 0;
    // It may be broken, and nobody has noticed yet.
    if (!current.status().ok() || driver.CtxGetDevice(&from) != cuda::kSuccess) continue;
    int can = from == device ? 1 : 0;
    if (can == 0) {
      SPCCL_RETURN_IF_ERROR(
          driver.ToStatus(driver.DeviceCanAccessPeer(&can, from, device), "cuDeviceCanAccessPeer"));
    }
    if (can == 0) continue;
    accesses.push_back({.location = {.type = cuda::kMemLocationTypeDevice, .id = from},
                        .flags = cuda::kMemAccessFlagsProtReadWrite});
  }
  return accesses;
}

absl::StatusOr<uint64_t> OpenDescriptors(runtime::Gpus& gpus, const GpuHandle& handle) {
  const cuda::Driver& driver = *gpus.driver();
  cuda::Device device = 0;
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(driver.CtxGetDevice(&device), "cuCtxGetDevice"));
  SPCCL_ASSIGN_OR_RETURN(const auto accesses, AccessesTo(gpus, device));
  DevicePtr base = 0;
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(driver.MemAddressReserve(&base, handle.size_bytes, 0, 0, 0),
                                        "cuMemAddressReserve"));
  DevicePtr at = base;
  absl::Status status;
  size_t mapped = 0;
  for (; mapped < handle.piece_bytes.size(); ++mapped) {
    status = MapPiece(driver, device, handle.descriptors[mapped], at, handle.piece_bytes[mapped]);
    if (!status.ok()) break;
    at += handle.piece_bytes[mapped];
  }
  if (status.ok()) {
    status = driver.ToStatus(
        driver.MemSetAccess(base, handle.size_bytes, accesses.data(), accesses.size()),
        "cuMemSetAccess");
  }
  if (status.ok()) return base;
  (void)Unmap(driver, base, handle.size_bytes, handle.piece_bytes, mapped);
  return status;
}

// Null: all have failed.
runtime::Gpu* FirstWorking(runtime::Gpus& gpus) {
  for (size_t i = 0; i < gpus.count(); ++i) {
    if (gpus.at(i).status().ok()) return &gpus.at(i);
  }
  return nullptr;
}

}  // namespace

std::string GpuName(const cuda::Uuid& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text.push_back('-');
    absl::StrAppend(&text, absl::Hex(static_cast<uint8_t>(uuid.bytes[i]), absl::kZeroPad2));
  }
  return text;
}

absl::StatusOr<GpuHandle> CheckGpuHandle(const shm::Request& request, PassedFds fds) {
  const auto& body = request.register_cuda;
  GpuHandle handle{.kind = body.kind,
                   .ipc = {},
                   .descriptors = std::move(fds),
                   .piece_bytes = {},
                   .size_bytes = body.size_bytes};
  if (body.size_bytes == 0 || body.size_bytes > INT64_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("GPU memory of ", body.size_bytes, " bytes"));
  }
  if (body.kind == shm::CudaHandleKind::kIpc) {
    if (body.pieces != 1 || !handle.descriptors.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("a handle of GPU memory with ", body.pieces,
                                                     " pieces and ", handle.descriptors.size(),
                                                     " descriptors beside it"));
    }
    static_assert(sizeof handle.ipc.reserved == sizeof body.ipc_handle);
    std::memcpy(handle.ipc.reserved, body.ipc_handle, sizeof body.ipc_handle);
    return handle;
  }
  if (body.kind != shm::CudaHandleKind::kDescriptors) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU memory of unknown kind ", static_cast<uint32_t>(body.kind)));
  }
  if (body.pieces == 0 || body.pieces > shm::kMaxCudaPieces ||
      body.pieces != handle.descriptors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("GPU memory of ", body.pieces, " pieces with ",
                                                   handle.descriptors.size(), " descriptors"));
  }
  uint64_t sum = 0;  // at most 48 * 2^44
  for (uint32_t i = 0; i < body.pieces; ++i) {
    const uint64_t bytes = body.piece_units[i] * shm::kCudaPieceUnitBytes;
    if (bytes == 0) return absl::InvalidArgumentError("a piece of GPU memory of 0 bytes");
    handle.piece_bytes.push_back(bytes);
    sum += bytes;
  }
  if (sum == body.size_bytes) return handle;
  return absl::InvalidArgumentError(
      absl::StrCat("GPU memory of ", body.size_bytes, " bytes in pieces of ", sum));
}

GpuImports::~GpuImports() {
  // An issuing thread may be the last to hold what was opened, for a moment after it has told the
  // end of the operation.
  for (size_t i = 0; i < gpus_.count(); ++i) {
    if (gpus_.at(i).status().ok()) Post(gpus_.at(i), [] { return [] {}; });
  }
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return pending_ == 0; });
  done_.clear();
}

void GpuImports::Post(runtime::Gpu& gpu, std::function<std::function<void()>()> work) {
  {
    const std::lock_guard lock(mutex_);
    ++pending_;
  }
  gpu.Post([this, work = std::move(work)]() mutable {
    std::function<void()> deliver = work();
    work = nullptr;  // gives what it holds to those who may end once nothing is pending
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(deliver));
    notify_();
    if (--pending_ == 0) idle_.notify_all();
  });
}

void GpuImports::Deliver() {
  std::vector<std::function<void()>> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  for (const auto& deliver : done) deliver();
}

void GpuImports::Open(runtime::Gpu& gpu, GpuHandle handle,
                      std::function<void(const absl::StatusOr<GpuMemoryRef>&)> then) {
  auto shared = std::make_shared<GpuHandle>(std::move(handle));
  Post(gpu, [this, &gpu, shared, then = std::move(then)]() -> std::function<void()> {
    return [then, memory = OpenHere(gpu, *shared)] { then(memory); };
  });
}

absl::StatusOr<GpuMemoryRef> GpuImports::OpenHere(runtime::Gpu& gpu, GpuHandle& handle) {
  const std::shared_ptr<const cuda::Driver> driver = gpus_.driver();
  const bool is_ipc = handle.kind == shm::CudaHandleKind::kIpc;
  const auto pointer = is_ipc ? OpenIpc(*driver, handle) : OpenDescriptors(gpus_, handle);
  if (!pointer.ok()) return NotOpened(pointer.status());
  handle.descriptors.CloseHere();  // the driver knows them
  auto* const memory =
      new GpuMemory{.gpu = gpu.index(), .pointer = *pointer, .size_bytes = handle.size_bytes};
  return GpuMemoryRef(memory, [this, driver, is_ipc, &gpu,
                               pieces = handle.piece_bytes](const GpuMemory* dropped) {
    closer_.Defer(gpu, [driver, is_ipc, &gpu, pieces, dropped] {
      const std::unique_ptr<const GpuMemory> owned(dropped);
      // On one that has stuck it would wait for ever: the memory goes with the process.
      if (!gpu.status().ok()) return;
      const cuda::ScopedContext current(*driver, gpu.context());
      LogIfFailed(current.status());
      LogIfFailed(
          is_ipc
              ? driver->ToStatus(driver->IpcCloseMemHandle(dropped->pointer), "cuIpcCloseMemHandle")
              : Unmap(*driver, dropped->pointer, dropped->size_bytes, pieces, pieces.size()));
    });
  });
}

void GpuImports::Register(MappingRef mapping,
                          std::function<void(const absl::StatusOr<OrderMapRef>&)> then) {
  runtime::Gpu* const gpu = FirstWorking(gpus_);
  // What is copied through the host needs no GPU of this process.
  if (gpu == nullptr) return then(std::make_shared<const OrderMap>(std::move(mapping), 0));
  Post(*gpu,
       [this, mapping = std::move(mapping), then = std::move(then)]() -> std::function<void()> {
         return [then, order = RegisterHere(mapping)] { then(order); };
       });
}

absl::StatusOr<OrderMapRef> GpuImports::RegisterHere(const MappingRef& mapping) {
  absl::Status first;
  for (size_t i = 0; i < gpus_.count(); ++i) {
    runtime::Gpu& gpu = gpus_.at(i);
    if (!gpu.status().ok()) continue;
    const absl::StatusOr<DevicePtr> pointer = RegisterOn(gpu, *mapping);
    if (pointer.ok()) return OwnOrder(gpu, mapping, *pointer);
    // It may be broken, and nobody has noticed yet.
    if (first.ok()) first = pointer.status();
  }
  if (!first.ok()) return first;
  return std::make_shared<const OrderMap>(mapping, 0);
}

absl::StatusOr<uint64_t> GpuImports::RegisterOn(const runtime::Gpu& gpu,
                                                const SharedMapping& mapping) {
  const cuda::Driver& driver = *gpus_.driver();
  const cuda::ScopedContext current(driver, gpu.context());
  SPCCL_RETURN_IF_ERROR(current.status());
  void* const memory = mapping.data();
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.MemHostRegister(memory, mapping.size_bytes(),
                             cuda::kMemHostRegisterPortable | cuda::kMemHostRegisterDeviceMap),
      "cuMemHostRegister"));
  DevicePtr pointer = 0;
  const absl::Status status = driver.ToStatus(driver.MemHostGetDevicePointer(&pointer, memory, 0),
                                              "cuMemHostGetDevicePointer");
  if (status.ok()) return pointer;
  (void)driver.MemHostUnregister(memory);
  return status;
}

OrderMapRef GpuImports::OwnOrder(const runtime::Gpu& gpu, MappingRef mapping, uint64_t pointer) {
  void* const memory = mapping->data();
  auto* const map = new OrderMap(std::move(mapping), pointer);
  return OrderMapRef(map, [this, &gpu, memory](const OrderMap* dropped) {
    // The one it was registered on may have failed since, and what is to be closed there may wait
    // for ever: any will do.
    const runtime::Gpu* const closes = FirstWorking(gpus_);
    closer_.Defer(closes != nullptr ? *closes : gpu, [&gpus = gpus_, memory, dropped] {
      // Unmapped after it is unregistered.
      const std::unique_ptr<const OrderMap> owned(dropped);
      const runtime::Gpu* const working = FirstWorking(gpus);
      if (working == nullptr) return;
      const cuda::Driver& driver = *gpus.driver();
      const cuda::ScopedContext current(driver, working->context());
      LogIfFailed(driver.ToStatus(driver.MemHostUnregister(memory), "cuMemHostUnregister"));
    });
  });
}

}  // namespace spccl::daemon
