// Brings frames from node to node as they are, in the GPUs' memory, as NCCL does: for nodes whose
// ranks are on the same fake GPUs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collective/transport/transport.h"

namespace spccl::testing {

// Outlives its transports. Thread-safe. A frame that comes before its node has started waits.
class GpuWire {
 public:
  explicit GpuWire(std::vector<uint32_t> node_of_rank) : node_of_rank_(std::move(node_of_rank)) {}

  std::unique_ptr<transport::Transport> Open(uint32_t node) {
    return std::make_unique<Port>(*this, node);
  }
  // Done to the next frame on its way.
  void ChangeNext(std::function<void(transport::Frame*)> change) {
    const std::lock_guard lock(mutex_);
    change_ = std::move(change);
  }

 private:
  struct Node {
    transport::Sink* sink = nullptr;
    bool stopped = false;
    std::vector<std::pair<transport::Tag, transport::Frame>> early;
  };

  class Port final : public transport::Transport {
   public:
    Port(GpuWire& wire, uint32_t node) : wire_(wire), node_(node) {}
    void Start(transport::Sink* sink) override { wire_.Start(node_, sink); }
    absl::Status Send(const transport::Tag& tag, transport::Frame frame) override {
      wire_.Send(tag, std::move(frame));
      return absl::OkStatus();
    }
    bool TakesGpuFrames() const override { return true; }
    void Stop() override { wire_.Stop(node_); }

   private:
    GpuWire& wire_;
    const uint32_t node_;
  };

  // The lock is held while sinks are called: they do not call back.
  void Start(uint32_t number, transport::Sink* sink) {
    const std::lock_guard lock(mutex_);
    Node& node = nodes_[number];
    node.sink = sink;
    for (auto& [tag, frame] : std::exchange(node.early, {})) sink->OnFrame(tag, std::move(frame));
  }
  void Send(const transport::Tag& tag, transport::Frame frame) {
    const std::lock_guard lock(mutex_);
    if (change_) std::exchange(change_, nullptr)(&frame);
    Node& node = nodes_[node_of_rank_[tag.to]];
    if (node.stopped) return;
    if (node.sink == nullptr) {
      node.early.emplace_back(tag, std::move(frame));
    } else {
      node.sink->OnFrame(tag, std::move(frame));
    }
  }
  void Stop(uint32_t number) {
    const std::lock_guard lock(mutex_);
    nodes_[number].stopped = true;
    nodes_[number].early.clear();
  }

  const std::vector<uint32_t> node_of_rank_;
  std::mutex mutex_;
  std::map<uint32_t, Node> nodes_;
  std::function<void(transport::Frame*)> change_;
};

}  // namespace spccl::testing
