// Between participants of one node and of others: frames for this node's change hands at once, the
// others' go by another transport.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collective/transport/transport.h"

namespace spccl::transport {

class MeshTransport final : public Transport {
 public:
  // here[rank]: whether the rank is this node's. `far` reaches the ranks that are not.
  MeshTransport(std::vector<bool> here, std::unique_ptr<Transport> far)
      : here_(std::move(here)), far_(std::move(far)) {}

  void Start(Sink* sink) override {
    sink_ = sink;
    far_->Start(sink);
  }
  absl::Status Send(const Tag& tag, Frame frame) override {
    if (!here_[tag.to]) return far_->Send(tag, std::move(frame));
    sink_->OnFrame(tag, std::move(frame));
    return absl::OkStatus();
  }
  // What is for this node's ranks needs no room.
  absl::Status AnnounceAhead(std::span<const FrameSize> sizes) override {
    std::vector<FrameSize> far;
    for (const FrameSize& size : sizes) {
      if (!here_[size.tag.to]) far.push_back(size);
    }
    return far.empty() ? absl::OkStatus() : far_->AnnounceAhead(far);
  }
  bool TakesGpuFrames() const override { return far_->TakesGpuFrames(); }
  bool HasRoom(uint32_t to) override { return here_[to] || far_->HasRoom(to); }
  // A delivery here is a Send of the task's own, and the task stops when none is running.
  void Stop() override { far_->Stop(); }

 private:
  const std::vector<bool> here_;
  const std::unique_ptr<Transport> far_;
  Sink* sink_ = nullptr;
};

}  // namespace spccl::transport
