// The daemons of other nodes, as the core sees them: control messages both ways, word of who comes
// and goes, and the data path of a communicator. daemon/peer_nodes.h is the real one; tests have
// others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/transport/link_share.h"
#include "collective/transport/transport.h"
#include "daemon/gpu_offer.h"
#include "daemon/peers/address.h"
#include "daemon/unique_ids.h"

namespace spccl::runtime {
class Gpu;
class Gpus;
}  // namespace spccl::runtime

namespace spccl::transport::nccl {
class Library;
}  // namespace spccl::transport::nccl

namespace spccl::v1 {
class PeerMessage;
}  // namespace spccl::v1

namespace spccl::daemon {

using NodeId = uint64_t;  // of a daemon, in this daemon's life; 0: none, or this one

struct NodeInfo {
  std::string name;     // of the host, for people
  std::string address;  // where others reach its daemon
  uint64_t boot_id = 0;

  std::string display() const { return peers::DisplayName(name, address); }
};

// What is known of the link from this node to another; 0: not yet.
struct LinkSpeed {
  int64_t round_trip_ns = 0;    // of few bytes
  double bytes_per_second = 0;  // as MeasureLink has found so far
};

// Called on any thread, for one node in the order in which things happened. They must only hand
// over: they may not call into Nodes.
struct NodeEvents {
  // Messages go both ways, and so do frames.
  std::function<void(NodeId, const NodeInfo&)> on_up;
  // It is out of reach, or never was in reach; final for this id. The status names the node.
  std::function<void(NodeId, const absl::Status&)> on_down;
  std::function<void(NodeId, std::shared_ptr<const v1::PeerMessage>)> on_message;
  // What MeasureLink asked for is known: see SpeedOf.
  std::function<void(NodeId)> on_measured;
};

// The world of GPUs that a communicator's frames go through, as its nodes have agreed.
struct GpuWorldPlan {
  struct Node {
    NodeId id = 0;  // 0: this one
    uint64_t boot_id = 0;
    uint32_t gpus = 0;
    std::string name = {};  // for people
  };
  uint64_t generation = 0;
  std::vector<Node> nodes;
};

struct ChannelOptions {
  CommKey key{};
  std::vector<NodeId> node_of_rank;  // 0 for ranks of this node; the others must be up
  std::shared_ptr<const transport::LinkShare> share;  // of its job
  std::optional<GpuWorldPlan> gpus;  // empty: frames between GPUs go through the hosts
};

// One operation of a communicator, as a node opens it: `op`, `plan` and `on_gpus` must be the same
// on all nodes.
struct ChannelOperation {
  OpDesc op;
  uint64_t sequence = 0;
  uint64_t plan = 0;     // digest of what all nodes must have planned alike
  bool on_gpus = false;  // the buffers of this node's ranks are, where there is a world
  uint64_t largest_frame_bytes = 0;
};

// The data path of one communicator. Its transports are gone before it, it before its Nodes.
class NodeChannel {
 public:
  virtual ~NodeChannel() = default;
  // For the operations of the communicator in order. Frames may arrive before; they are kept.
  virtual absl::StatusOr<std::unique_ptr<transport::Transport>> OpenOperation(
      const ChannelOperation& operation) = 0;
  // The same for frames in the memory of GPUs: those of lane l lie on rails[l % rails.size()] here.
  // Only where it was opened with a world of GPUs, and in its place.
  virtual absl::StatusOr<std::unique_ptr<transport::Transport>> OpenGpuOperation(
      const ChannelOperation& operation, std::span<runtime::Gpu* const> rails) = 0;
};

// Thread-safe; nothing waits for a peer.
class Nodes {
 public:
  virtual ~Nodes() = default;

  // This node's GPUs, which outlive it, and what moves frames between them and others'. Once,
  // before Start; without it frames go through the host.
  virtual void UseGpus(runtime::Gpus* gpus,
                       std::shared_ptr<const transport::nccl::Library> library) = 0;
  // Instead: why there are none to use, for people.
  virtual void UseNoGpus(std::string why) = 0;
  // What this node has for that, now.
  virtual GpuOffer OfferGpus() = 0;

  // Once, before anything else; no event comes before.
  virtual void Start(NodeEvents events) = 0;
  // No event comes after. Peers are told; what was sent before still goes out, within half a
  // second.
  virtual void Stop() = 0;

  virtual const NodeInfo& self() const = 0;

  // The daemon with this boot id, connected to at `address` if it is not yet; it is up when on_up
  // has said so. Held until Release; one that nobody holds may be let go. InvalidArgument: it is
  // this one.
  virtual absl::StatusOr<NodeId> Connect(const std::string& address, uint64_t boot_id) = 0;
  virtual void Hold(NodeId node) = 0;
  virtual void Release(NodeId node) = 0;

  // Sent in order, once it is up; dropped if it is down.
  virtual void Send(NodeId node, const v1::PeerMessage& message) = 0;

  virtual absl::StatusOr<std::unique_ptr<NodeChannel>> OpenChannel(ChannelOptions options) = 0;

  // How frames reach a node, for people: "tcp/eth0"; empty if they do not.
  virtual std::string RouteTo(NodeId node) const = 0;

  // Finds out how fast data gets to a node that is up; on_measured follows, at once if that is
  // known from before, and never if the node goes down first. Sends a few MiB.
  virtual void MeasureLink(NodeId node) = 0;
  // All zeros for one that is not up.
  virtual LinkSpeed SpeedOf(NodeId node) const = 0;
};

// A share in the connection to another node: while one lives, the connection is kept. Gone before
// its Nodes. Move-only.
class NodeHold {
 public:
  NodeHold(Nodes* nodes, NodeId node) : NodeHold(nodes, node, Adopt{}) { nodes->Hold(node); }
  // As Nodes::Connect.
  static absl::StatusOr<NodeHold> Connect(Nodes* nodes, const std::string& address,
                                          uint64_t boot_id) {
    const absl::StatusOr<NodeId> node = nodes->Connect(address, boot_id);
    if (!node.ok()) return node.status();
    return NodeHold(nodes, *node, Adopt{});
  }
  NodeHold(NodeHold&& other) noexcept
      : nodes_(std::exchange(other.nodes_, nullptr)), node_(other.node_) {}
  NodeHold& operator=(NodeHold&&) = delete;
  ~NodeHold() {
    if (nodes_ != nullptr) nodes_->Release(node_);
  }

  NodeId node() const { return node_; }

 private:
  struct Adopt {};  // it is held already
  NodeHold(Nodes* nodes, NodeId node, Adopt) : nodes_(nodes), node_(node) {}

  Nodes* nodes_;
  const NodeId node_;
};

}  // namespace spccl::daemon
