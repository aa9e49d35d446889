#include "daemon/node_channel.h"

#include <span>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

using transport::Frame;
using transport::FrameSize;
using transport::Sink;
using transport::Tag;
using transport::Transport;

// Frames go by `frames`. `facts` moves none: it is there because nodes compare by it what each has
// called, also with those whose buffers are in the host's memory, who know no world of GPUs.
class ComparedTransport final : public Transport {
 public:
  ComparedTransport(std::unique_ptr<Transport> facts, std::unique_ptr<Transport> frames)
      : facts_(std::move(facts)), frames_(std::move(frames)) {}
  ~ComparedTransport() override { Stop(); }

  void Start(Sink* sink) override {
    frames_->Start(sink);
    facts_->Start(sink);
  }
  absl::Status Send(const Tag& tag, Frame frame) override {
    return frames_->Send(tag, std::move(frame));
  }
  absl::Status AnnounceAhead(std::span<const FrameSize> sizes) override {
    return frames_->AnnounceAhead(sizes);
  }
  bool TakesGpuFrames() const override { return frames_->TakesGpuFrames(); }
  bool HasRoom(uint32_t to) override { return frames_->HasRoom(to); }
  void Stop() override {
    facts_->Stop();
    frames_->Stop();
  }

 private:
  const std::unique_ptr<Transport> facts_, frames_;
};

class RealChannel final : public NodeChannel {
 public:
  RealChannel(std::unique_ptr<transport::ucx::Communicator> communicator,
              std::unique_ptr<GpuChannel> gpus)
      : communicator_(std::move(communicator)), gpus_(std::move(gpus)) {}

  absl::StatusOr<std::unique_ptr<Transport>> OpenOperation(
      const ChannelOperation& operation) override {
    return communicator_->OpenOperation(
        {.sequence = operation.sequence,
         .facts = {.op = operation.op, .plan = operation.plan, .on_gpus = operation.on_gpus},
         .largest_frame_bytes = operation.largest_frame_bytes});
  }
  absl::StatusOr<std::unique_ptr<Transport>> OpenGpuOperation(
      const ChannelOperation& operation, std::span<runtime::Gpu* const> rails) override {
    SPCCL_CHECK(gpus_ != nullptr);
    SPCCL_ASSIGN_OR_RETURN(auto facts, OpenOperation(operation));
    SPCCL_ASSIGN_OR_RETURN(auto frames, gpus_->OpenOperation(operation.sequence, operation.plan,
                                                             operation.largest_frame_bytes, rails));
    return std::make_unique<ComparedTransport>(std::move(facts), std::move(frames));
  }

 private:
  const std::unique_ptr<transport::ucx::Communicator> communicator_;
  const std::unique_ptr<GpuChannel> gpus_;
};

}  // namespace

std::unique_ptr<NodeChannel> MakeNodeChannel(
    std::unique_ptr<transport::ucx::Communicator> communicator, std::unique_ptr<GpuChannel> gpus) {
  return std::make_unique<RealChannel>(std::move(communicator), std::move(gpus));
}

}  // namespace spccl::daemon
