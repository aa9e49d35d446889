// Daemons of other nodes that are played by the test: it reads what the core says to them and says
// what it likes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/nodes.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {

// A node's id is its boot id. Thread-safe.
class FakeNodes final : public Nodes {
 public:
  // Whether on_measured follows MeasureLink.
  explicit FakeNodes(bool measures = true) : measures_(measures) {}

  // For tests.
  void Up(NodeId node) {
    const std::lock_guard lock(mutex_);
    events_.on_up(node, {.name = "node" + std::to_string(node),
                         .address = "fake:" + std::to_string(node),
                         .boot_id = node});
  }
  void Down(NodeId node, const absl::Status& reason) {
    const std::lock_guard lock(mutex_);
    events_.on_down(node, reason);
  }
  void Say(NodeId node, const v1::PeerMessage& message) {
    const std::lock_guard lock(mutex_);
    events_.on_message(node, std::make_shared<const v1::PeerMessage>(message));
  }
  void SetSpeed(NodeId node, LinkSpeed speed) {
    const std::lock_guard lock(mutex_);
    speeds_[node] = speed;
  }
  // The next message of this kind that the node was sent; of none if it does not come.
  v1::PeerMessage Await(NodeId node, v1::PeerMessage::KindCase kind) {
    std::unique_lock lock(mutex_);
    v1::PeerMessage found;
    changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      auto& sent = sent_[node];
      while (!sent.empty() && found.kind_case() != kind) {
        found = std::move(sent.front());
        sent.pop_front();
      }
      return found.kind_case() == kind;
    });
    return found;
  }
  void SetOffer(GpuOffer offer) {
    const std::lock_guard lock(mutex_);
    offer_ = std::move(offer);
  }
  std::vector<ChannelOptions> opened() {
    const std::lock_guard lock(mutex_);
    return opened_;
  }
  std::vector<NodeId> measured() {
    const std::lock_guard lock(mutex_);
    return measured_;
  }

  // Nodes.
  void Start(NodeEvents events) override {
    const std::lock_guard lock(mutex_);
    events_ = std::move(events);
  }
  void Stop() override {
    const std::lock_guard lock(mutex_);
    events_ = {};
  }
  const NodeInfo& self() const override { return self_; }
  absl::StatusOr<NodeId> Connect(const std::string& /*address*/, uint64_t boot_id) override {
    return boot_id;
  }
  void Hold(NodeId /*node*/) override {}
  void Release(NodeId /*node*/) override {}
  void Send(NodeId node, const v1::PeerMessage& message) override {
    const std::lock_guard lock(mutex_);
    sent_[node].push_back(message);
    changed_.notify_all();
  }
  absl::StatusOr<std::unique_ptr<NodeChannel>> OpenChannel(ChannelOptions options) override {
    const std::lock_guard lock(mutex_);
    opened_.push_back(std::move(options));
    return std::make_unique<NoChannel>();
  }
  void UseGpus(runtime::Gpus*, std::shared_ptr<const transport::nccl::Library>) override {}
  void UseNoGpus(std::string) override {}
  GpuOffer OfferGpus() override {
    const std::lock_guard lock(mutex_);
    return offer_;
  }
  std::string RouteTo(NodeId /*node*/) const override { return "fake"; }
  void MeasureLink(NodeId node) override {
    const std::lock_guard lock(mutex_);
    measured_.push_back(node);
    if (measures_) events_.on_measured(node);
  }
  LinkSpeed SpeedOf(NodeId node) const override {
    const std::lock_guard lock(mutex_);
    const auto found = speeds_.find(node);
    return found == speeds_.end() ? LinkSpeed() : found->second;
  }

 private:
  class NoChannel final : public NodeChannel {
   public:
    absl::StatusOr<std::unique_ptr<transport::Transport>> OpenOperation(
        const ChannelOperation&) override {
      return absl::UnimplementedError("nothing runs between these nodes");
    }
    absl::StatusOr<std::unique_ptr<transport::Transport>> OpenGpuOperation(
        const ChannelOperation&, std::span<runtime::Gpu* const>) override {
      return absl::UnimplementedError("nothing runs between these nodes");
    }
  };

  const bool measures_;
  const NodeInfo self_{.name = "here", .address = "fake:1", .boot_id = 1};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  NodeEvents events_;
  std::map<NodeId, std::deque<v1::PeerMessage>> sent_;
  std::map<NodeId, LinkSpeed> speeds_;
  std::vector<NodeId> measured_;
  std::vector<ChannelOptions> opened_;
  GpuOffer offer_;
};

}  // namespace spccl::daemon
