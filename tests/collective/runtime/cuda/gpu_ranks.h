// The buffers of the ranks of one operation on fake GPUs, each rank with a stream of its own that
// brings its input late and takes its result away, ordered as a client's is.
#pragma once

#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <vector>

#include "base/status.h"
#include "collective/op.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/rank_buffers.h"
#include "proto/shm/order.h"
#include "tests/support/collective_oracle.h"

namespace spccl::testing {

inline cuda::DevicePtr PointerOf(const void* memory) {
  return reinterpret_cast<cuda::DevicePtr>(memory);
}

// Whoever has told an error lets the ranks go after that: until it has.
inline void AwaitRelease(runtime::Gpus& gpus) {
  for (size_t gpu = 0; gpu < gpus.count(); ++gpu) {
    std::promise<void> passed;
    gpus.at(gpu).Post([&passed] { passed.set_value(); });
    passed.get_future().wait();
  }
}

// Not thread-safe. A broken driver call ends the process.
class GpuRanks {
 public:
  // Rank r is on GPU gpu_of_rank[r], with its buffers in place if bit r of `in_place` is set.
  // `resets`: its words are those of a captured graph.
  GpuRanks(runtime::Gpus& gpus, const OpDesc& op, const std::vector<Bytes>& send,
           const std::vector<int>& gpu_of_rank, uint64_t in_place, uint64_t resets = 0)
      : gpus_(gpus), driver_(*gpus.driver()), op_(op), ranks_(send.size()) {
    Use(0);
    void* words = nullptr;
    Check(driver_.MemHostAlloc(&words, sizeof(shm::OrderSlot) * (send.size() + 1),
                               cuda::kMemHostAllocPortable));
    slots_ = new (words) shm::OrderSlot[send.size() + 1]{};
    for (uint32_t rank = 0; rank < send.size(); ++rank) {
      Add(rank, send[rank], gpu_of_rank[rank], (in_place >> rank & 1) != 0,
          (resets >> rank & 1) != 0);
    }
  }
  ~GpuRanks() {
    AwaitRelease(gpus_);
    for (Rank& rank : ranks_) {
      Use(rank.gpu);
      Check(driver_.StreamSynchronize(rank.stream));
      Check(driver_.StreamDestroy(rank.stream));
      Check(driver_.MemFree(rank.memory));
      Check(driver_.MemFreeHost(rank.host));
    }
    Use(0);
    Check(driver_.MemFreeHost(slots_));
    Check(driver_.CtxSetCurrent(nullptr));
  }
  GpuRanks(const GpuRanks&) = delete;
  GpuRanks& operator=(const GpuRanks&) = delete;

  std::vector<runtime::RankBuffers> buffers() const {
    std::vector<runtime::RankBuffers> all;
    for (const Rank& rank : ranks_) all.push_back(rank.buffers);
    return all;
  }

  // The rank's stream waits for LetGo, then brings the input and says that it is there; then waits
  // for `done` and fetches what is in the receive buffer.
  void Enqueue(uint32_t number, bool held = false) {
    Rank& rank = ranks_[number];
    Use(rank.gpu);
    const runtime::GpuOrder& order = *rank.buffers.order;
    if (held) {
      Check(driver_.StreamWaitValue32(rank.stream, PointerOf(&gate().ready), 1,
                                      cuda::kStreamWaitValueGeq));
    }
    if (rank.send_bytes > 0) {
      Check(driver_.MemcpyAsync(rank.memory + rank.send_at, PointerOf(rank.host), rank.send_bytes,
                                rank.stream));
    }
    Check(driver_.StreamWriteValue32(rank.stream, order.ready_pointer, order.value,
                                     cuda::kStreamWriteValueDefault));
    Check(driver_.StreamWaitValue32(rank.stream, order.done_pointer, order.value,
                                    cuda::kStreamWaitValueGeq));
    if (order.resets) {
      Check(driver_.StreamWriteValue32(rank.stream, order.done_pointer, 0,
                                       cuda::kStreamWriteValueDefault));
    }
    if (rank.recv_bytes > 0) {
      Check(driver_.MemcpyAsync(PointerOf(rank.host), rank.memory + rank.recv_at, rank.recv_bytes,
                                rank.stream));
    }
  }
  void EnqueueAll() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) Enqueue(rank);
  }
  void LetGo() { gate().ready.store(1, std::memory_order_release); }

  // When the rank's stream has come to its end.
  Bytes Received(uint32_t number) {
    Rank& rank = ranks_[number];
    Use(rank.gpu);
    Check(driver_.StreamSynchronize(rank.stream));
    const auto* const begin = static_cast<const std::byte*>(rank.host);
    return Bytes(begin, begin + rank.recv_bytes);
  }
  const runtime::GpuOrder& order(uint32_t rank) const { return *ranks_[rank].buffers.order; }

 private:
  struct Rank {
    int gpu = 0;
    cuda::DevicePtr memory = 0;
    size_t send_at = 0, recv_at = 0, send_bytes = 0, recv_bytes = 0;
    void* host = nullptr;
    cuda::Stream stream = nullptr;
    runtime::RankBuffers buffers;
  };

  shm::OrderSlot& gate() { return slots_[ranks_.size()]; }
  void Check(cuda::Result result) const {
    const absl::Status status = driver_.ToStatus(result, "of the test");
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    SPCCL_CHECK(status.ok());
  }
  void Use(int gpu) const {
    Check(driver_.CtxSetCurrent(gpus_.at(static_cast<size_t>(gpu)).context()));
  }

  cuda::DevicePtr DevicePointerOf(void* word) const {
    cuda::DevicePtr pointer = 0;
    Check(driver_.MemHostGetDevicePointer(&pointer, word, 0));
    return pointer;
  }

  void Add(uint32_t number, const Bytes& send, int gpu, bool in_place, bool resets) {
    const auto ranks = static_cast<uint32_t>(ranks_.size());
    const size_t width = SizeOf(op_.dtype);
    Rank& rank = ranks_[number];
    rank.gpu = gpu;
    rank.send_bytes = send.size();
    rank.recv_bytes = RecvElements(op_, ranks) * width;
    const size_t share = number * op_.count * width;
    size_t total = (rank.send_bytes + 255) / 256 * 256 + rank.recv_bytes;
    rank.recv_at = total - rank.recv_bytes;
    if (in_place) {
      rank.send_at = op_.kind == OpKind::kAllGather ? share : 0;
      const bool to_share = op_.kind == OpKind::kReduceScatter || op_.kind == OpKind::kScatter;
      rank.recv_at = to_share ? share : 0;
      total = std::max(rank.send_at + rank.send_bytes, rank.recv_at + rank.recv_bytes);
    }
    Use(gpu);
    Check(driver_.MemAlloc(&rank.memory, total + 1));
    Check(driver_.MemHostAlloc(&rank.host, std::max(rank.send_bytes, rank.recv_bytes) + 1, 0));
    if (!send.empty()) std::memcpy(rank.host, send.data(), send.size());
    Check(driver_.StreamCreateWithPriority(&rank.stream, cuda::kStreamNonBlocking, 0));
    Check(driver_.MemsetD8Async(rank.memory, 0xA5, total + 1, rank.stream));
    auto order = std::make_shared<runtime::GpuOrder>();
    shm::OrderSlot& slot = slots_[number];
    order->ready = &slot.ready;
    order->done = &slot.done;
    order->ready_pointer = DevicePointerOf(&slot.ready);
    order->done_pointer = DevicePointerOf(&slot.done);
    order->resets = resets;
    order->value = resets ? 1 : UINT32_MAX - 1 + number;  // counting goes past the end
    if (!resets) {
      slot.ready.store(order->value - 1);
      slot.done.store(order->value - 1);
    }
    rank.buffers.order = std::move(order);
    rank.buffers.send = runtime::MemoryView::Device(rank.memory + rank.send_at, gpu);
    rank.buffers.recv = runtime::MemoryView::Device(rank.memory + rank.recv_at, gpu);
  }

  runtime::Gpus& gpus_;
  const cuda::Driver& driver_;
  const OpDesc op_;
  std::vector<Rank> ranks_;
  shm::OrderSlot* slots_ = nullptr;
};

}  // namespace spccl::testing
