// Collectives on memory of a GPU: handed over to the daemon, or copied where that cannot be, and
// ordered with the caller's CUDA stream. Nothing here waits for a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "client/collective_call.h"
#include "client/comm.h"
#include "client/cuda_buffer.h"
#include "client/cuda_memory.h"
#include "client/pinned_pool.h"
#include "client/stream_order.h"

namespace spccl::client {

class GpuEnqueue;  // client/gpu_call.h
struct GpuWork;

// The memory of a call, where it is a GPU's; null: that buffer is not looked at.
struct GpuCall {
  std::shared_ptr<const DeviceMemory> send, recv;
  cuda::Stream stream = nullptr;

  const DeviceMemory& any() const { return recv != nullptr ? *recv : *send; }
};

// What the library keeps for a process's GPUs. Thread-safe.
class GpuClient {
 public:
  GpuClient() : buffers_(&memory_) {}

  CudaMemory& memory() { return memory_; }

  // spcclCommRegister and its counterpart; null: the memory will be copied.
  absl::StatusOr<std::shared_ptr<CudaBuffer>> Register(const std::shared_ptr<Session>& session,
                                                       const DeviceMemory& memory, const void* data,
                                                       size_t bytes);
  void Deregister(const std::shared_ptr<CudaBuffer>& buffer);

  // Whether the call's buffers are on GPUs; null: they are the host's, or there are none. One of
  // each kind is a FailedPrecondition. Costs one atomic load where no GPU is used.
  absl::StatusOr<std::optional<GpuCall>> Find(const CollectiveCall& call, const Footprint& bytes,
                                              void* stream);
  // Room for a call, for Begin(). Null: there is none until operations of the session end. An
  // error: the communicator has failed, or there will be none.
  absl::StatusOr<std::unique_ptr<OrderSlot>> TakeSlot(const std::shared_ptr<Comm>& comm,
                                                      const GpuCall& gpu, StreamOrder::Room room);
  // Enqueues the call's first half on its stream and returns the second, for End().
  absl::StatusOr<std::unique_ptr<GpuEnqueue>> Begin(const std::shared_ptr<Comm>& comm,
                                                    const CollectiveCall& call,
                                                    const Footprint& bytes, const GpuCall& gpu,
                                                    std::unique_ptr<OrderSlot> slot);
  absl::Status End(const GpuCall& gpu, GpuEnqueue* enqueue);
  // Makes what operations need that cannot be made under stream capture. Where it fails the first
  // operation says why.
  void Prepare(const std::shared_ptr<Session>& session);

 private:
  // With a buffer, for memory that cannot be handed over.
  absl::StatusOr<std::shared_ptr<GpuWork>> NewWork(const std::shared_ptr<Comm>& comm,
                                                   const CollectiveCall& call,
                                                   const Footprint& bytes, const GpuCall& gpu,
                                                   cuda::Context context, OrderSlot* slot);
  absl::Status Place(const std::shared_ptr<Session>& session, const GpuCall& gpu,
                     cuda::Context context, GpuWork* work);
  absl::StatusOr<std::shared_ptr<StreamOrder>> OrderOf(const std::shared_ptr<Session>& session,
                                                       cuda::Context context);

  CudaMemory memory_;
  CudaBuffers buffers_;
  PinnedPool pinned_;
  std::mutex mutex_;
  std::shared_ptr<StreamOrder> order_;  // of the session with this serial
  uint64_t order_serial_ = 0;
};

}  // namespace spccl::client
