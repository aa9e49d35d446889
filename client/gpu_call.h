// One collective on memory of a GPU, on its way to the stream and to the daemon.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
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

// The two halves of putting a call on its stream: what lets the daemon begin, and the wait for the
// end. The calls of a group all have their first half before any has its second, so that what one
// rank waits for is never behind that wait, whichever stream they share.
class GpuEnqueue {
 public:
  GpuEnqueue(const cuda::Driver& driver, std::shared_ptr<Comm> comm, std::shared_ptr<GpuWork> work,
             cuda::Stream stream)
      : driver_(driver), comm_(std::move(comm)), work_(std::move(work)), stream_(stream) {}
  virtual ~GpuEnqueue() = default;
  GpuEnqueue(const GpuEnqueue&) = delete;
  GpuEnqueue& operator=(const GpuEnqueue&) = delete;

  // An error: nothing of it will run, and there is nothing to end.
  virtual absl::Status Begin() = 0;
  // Once, after it has begun. An error: it will not run, or nothing waits for it.
  virtual absl::Status End() = 0;

 protected:
  const cuda::Driver& driver_;
  const std::shared_ptr<Comm> comm_;
  const std::shared_ptr<GpuWork> work_;
  const cuda::Stream stream_;
};

// Of work that has its places and its slot.
std::unique_ptr<GpuEnqueue> NewEnqueue(const cuda::Driver& driver, std::shared_ptr<Comm> comm,
                                       std::shared_ptr<GpuWork> work, cuda::Stream stream);

}  // namespace spccl::client
