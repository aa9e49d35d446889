// GPU memory that clients hand over, as this process has it open, and memory of the host that the
// GPUs reach.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "collective/runtime/cuda/gpus.h"
#include "daemon/fd_closer.h"
#include "daemon/gpu_closer.h"
#include "daemon/reaper.h"
#include "proto/shm/order.h"
#include "proto/shm/session.h"

namespace spccl::daemon {

// "GPU-" and the UUID, as NVIDIA's tools have it.
std::string GpuName(const cuda::Uuid& uuid);

// What a client says of memory that it hands over. Sizes are above 0 and do not wrap.
struct GpuHandle {
  shm::CudaHandleKind kind;
  cuda::IpcMemHandle ipc;
  PassedFds descriptors;  // one a piece
  std::vector<uint64_t> piece_bytes;
  uint64_t size_bytes;  // of all pieces
};
// InvalidArgument: the fields do not fit together. `fds` came beside the request.
absl::StatusOr<GpuHandle> CheckGpuHandle(const shm::Request& request, PassedFds fds);

// Opened memory. Whoever drops the last reference, on whatever thread, the closer closes it.
struct GpuMemory {
  int gpu;           // in runtime::Gpus
  uint64_t pointer;  // in this process
  uint64_t size_bytes;
};
using GpuMemoryRef = std::shared_ptr<const GpuMemory>;

// A session's order memory, mapped and, where there are GPUs, registered with their driver.
class OrderMap {
 public:
  OrderMap(MappingRef mapping, uint64_t pointer)
      : mapping_(std::move(mapping)), pointer_(pointer) {}
  shm::OrderSlot& slot(uint32_t index) const {
    return reinterpret_cast<shm::OrderMemory*>(mapping_->data())->slots[index];
  }
  // As streams have it; 0: no GPU reaches it.
  uint64_t pointer() const { return pointer_; }

 private:
  const MappingRef mapping_;
  const uint64_t pointer_;
};
using OrderMapRef = std::shared_ptr<const OrderMap>;

// Opens and registers on the GPUs' issuing threads; the results are delivered where Deliver() is
// called. What it opens is closed by the closer, and the GPUs outlive that.
class GpuImports {
 public:
  // `gpus` and `closer` are borrowed. `notify` is called on any thread: there is something to
  // deliver.
  GpuImports(runtime::Gpus* gpus, GpuCloser* closer, std::function<void()> notify)
      : gpus_(*gpus), closer_(*closer), notify_(std::move(notify)) {}
  // Waits until the threads of the GPUs that work have done what was posted to them. What was not
  // delivered is dropped.
  ~GpuImports();

  // Opens it. It is an InvalidArgument if the driver does not know it, or if it is smaller than
  // said or on another GPU.
  void Open(runtime::Gpu& gpu, GpuHandle handle,
            std::function<void(const absl::StatusOr<GpuMemoryRef>&)> then);
  // Registers the mapping for all GPUs, with the first that works; where none does, with none, and
  // `then` is called at once.
  void Register(MappingRef mapping, std::function<void(const absl::StatusOr<OrderMapRef>&)> then);
  // Calls the `then` of what has been done.
  void Deliver();

 private:
  absl::StatusOr<GpuMemoryRef> OpenHere(runtime::Gpu& gpu, GpuHandle& handle);
  absl::StatusOr<OrderMapRef> RegisterHere(const MappingRef& mapping);
  // The pointer that streams have it by.
  absl::StatusOr<uint64_t> RegisterOn(const runtime::Gpu& gpu, const SharedMapping& mapping);
  OrderMapRef OwnOrder(const runtime::Gpu& gpu, MappingRef mapping, uint64_t pointer);
  // Runs `work` on the GPU's thread; what it returns is to be delivered.
  void Post(runtime::Gpu& gpu, std::function<std::function<void()>()> work);

  runtime::Gpus& gpus_;
  GpuCloser& closer_;
  const std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable idle_;
  uint32_t pending_ = 0;
  std::vector<std::function<void()>> done_;
};

}  // namespace spccl::daemon
