// Frames of GPUs' memory over a transport that carries the host's: each is copied through pinned
// memory, as large as it is. For where no transport takes them from a GPU.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collective/runtime/cuda/coroutine.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/transport/transport.h"

namespace spccl::runtime {

// What comes has passed Validate, and lies in the memory of the lane's rail.
class BouncedTransport final : public transport::Transport, private transport::Sink {
 public:
  // Lane l: rails[l % rails.size()]; frames that are sent are in its memory.
  BouncedTransport(Gpus& gpus, std::vector<Gpu*> rails, std::unique_ptr<transport::Transport> far);
  ~BouncedTransport() override;

  void Start(transport::Sink* sink) override;
  // OK says less than elsewhere: where the frame cannot be sent, OnPeerFailed tells so.
  absl::Status Send(const transport::Tag& tag, transport::Frame frame) override;
  bool HasRoom(uint32_t to) override;
  void Stop() override;

 private:
  // Outlives the transport, as long as a copy is under way.
  struct State {
    Gpus& gpus;
    std::mutex mutex;
    std::condition_variable left;
    transport::Sink* sink = nullptr;
    transport::Transport* far = nullptr;
    bool stopped = false;
    std::vector<std::thread::id> callers;  // of the sink or the far transport
    size_t leaving = 0;                    // frames that are being copied to the host
    bool wants_room = false;

    explicit State(Gpus& all) : gpus(all) {}
    // Calls `what`, unless stopped.
    template <class What>
    void Call(const What& what);
    // A frame is on its way no more.
    void Leave();
  };

  void OnFrame(const transport::Tag& tag, transport::Frame frame) override;
  void OnPeerFailed(uint32_t rank, absl::Status reason) override;
  void OnRoom() override;

  static Detached Bring(std::shared_ptr<State> state, Gpu& gpu, transport::Tag tag,
                        transport::Frame frame);
  static Detached Fetch(std::shared_ptr<State> state, Gpu& gpu, transport::Tag tag,
                        transport::Frame frame);
  static absl::StatusOr<transport::Frame> StartBringing(State& state, Gpu& gpu, uint64_t lane,
                                                        const transport::Frame& frame);
  static absl::StatusOr<transport::Frame> StartFetching(State& state, Gpu& gpu, uint64_t lane,
                                                        const transport::Frame& host,
                                                        transport::Frame* pinned);
  Gpu& RailOf(uint64_t lane) { return *rails_[lane % rails_.size()]; }

  const std::vector<Gpu*> rails_;
  const std::unique_ptr<transport::Transport> far_;
  const std::shared_ptr<State> state_;
};

}  // namespace spccl::runtime
