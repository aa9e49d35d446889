// One collective on memory of a GPU, on its way to the stream and to the daemon.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "client/collective_call.h"
#include "client/comm.h"
#include "client/cuda_buffer.h"
#include "client/operation.h"
#include "client/pinned_pool.h"
#include "client/stream_order.h"

namespace spccl::client {

// Where its memory is for the daemon, and what of it the stream has to copy.
struct GpuPlaces {
  shm::BufferRef send{}, recv{};
  std::vector<std::shared_ptr<CudaBuffer>> buffers;  // handed over
  std::shared_ptr<PinnedBuffer> staging;             // or copied through this
  size_t send_offset = 0, recv_offset = 0;           // in the staging buffer
};

// Held by the operation, and by the host function that submits it.
struct GpuWork {
  std::weak_ptr<Comm> comm;
  CollectiveCall call;
  Footprint bytes;
  GpuPlaces places;
  std::shared_ptr<StreamOrder> order;
  StreamOrder::Use use;

  // While no order word of it is on a stream.
  void GiveUp() const;
  // A new operation of the communicator for this work.
  std::shared_ptr<Operation> NewOperation(const std::shared_ptr<Comm>& owner,
                                          const std::shared_ptr<GpuWork>& self) const;
};

// Puts the work on the stream, at once or for each replay of the graph that is being captured, and
// has it submitted. An error: nothing of it will run.
absl::Status EnqueueDirect(const cuda::Driver& driver, const std::shared_ptr<Comm>& comm,
                           const std::shared_ptr<GpuWork>& work, cuda::Stream stream);
absl::Status EnqueueStaged(const cuda::Driver& driver, const std::shared_ptr<Comm>& comm,
                           const std::shared_ptr<GpuWork>& work, cuda::Stream stream);
absl::Status EnqueueCaptured(const cuda::Driver& driver, const std::shared_ptr<GpuWork>& work,
                             cuda::Stream stream);

}  // namespace spccl::client
