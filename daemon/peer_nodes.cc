#include "daemon/peer_nodes.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/transport/ucx/fabric.h"
#include "daemon/gpu_worlds.h"
#include "daemon/node_channel.h"

namespace spccl::daemon {
namespace {

namespace ucx = transport::ucx;

ucx::Key128 KeyOf(const CommKey& key) {
  ucx::Key128 words;
  std::memcpy(&words.high, key.data(), sizeof words.high);
  std::memcpy(&words.low, key.data() + sizeof words.high, sizeof words.low);
  return words;
}

class PeerNodes final : public Nodes {
 public:
  static absl::StatusOr<std::unique_ptr<Nodes>> Create(peers::PeerNetOptions options) {
    auto nodes = std::unique_ptr<PeerNodes>(new PeerNodes());
    if (::getrandom(&options.boot_id, sizeof options.boot_id, 0) != sizeof options.boot_id) {
      return ErrnoStatus(errno, "getrandom");
    }
    nodes->self_.boot_id = options.boot_id;
    SPCCL_ASSIGN_OR_RETURN(nodes->fabric_, ucx::Fabric::Create({}));
    peers::PeerCallbacks callbacks;
    callbacks.on_up = [raw = nodes.get()](peers::PeerId peer, const peers::PeerInfo& info) {
      raw->OnStreamUp(peer, info);
    };
    callbacks.on_message = [raw = nodes.get()](peers::PeerId peer, v1::PeerMessage message) {
      raw->OnStreamMessage(peer, std::move(message));
    };
    callbacks.on_down = [raw = nodes.get()](peers::PeerId peer, const absl::Status& status) {
      raw->OnStreamDown(peer, status);
    };
    // Peers may call before it has returned: they wait for the lock.
    const std::lock_guard lock(nodes->mutex_);
    SPCCL_ASSIGN_OR_RETURN(nodes->owned_net_,
                           peers::PeerNet::Create(std::move(options), std::move(callbacks)));
    nodes->net_ = nodes->owned_net_.get();
    nodes->self_.address = nodes->net_->address();
    nodes->self_.name = nodes->net_->name();
    return nodes;
  }

  ~PeerNodes() override {
    Stop();
    fabric_.reset();  // its threads call us until then
  }

  void UseGpus(runtime::Gpus* gpus,
               std::shared_ptr<const transport::nccl::Library> library) override {
    auto worlds = std::make_unique<GpuWorlds>(
        GpuWorlds::Options{.gpus = gpus,
                           .library = std::move(library),
                           .send = [this](NodeId node, const v1::PeerMessage& message) {
                             SendOfGpus(node, message);
                           }});
    const std::lock_guard lock(mutex_);
    gpu_worlds_ = std::move(worlds);
  }
  void UseNoGpus(std::string why) override {
    const std::lock_guard lock(mutex_);
    why_no_gpus_ = std::move(why);
  }
  GpuOffer OfferGpus() override {
    GpuWorlds* const worlds = gpu_worlds();
    if (worlds != nullptr) return worlds->Offer();
    GpuOffer none;
    const std::lock_guard lock(mutex_);
    none.why_none = why_no_gpus_;
    return none;
  }

  void Start(NodeEvents events) override {
    const std::lock_guard lock(mutex_);
    events_ = std::move(events);
    for (auto& [node, peer] : peers_) {
      if (peer.link_up) TellUp(node, &peer);
    }
  }

  void Stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    if (GpuWorlds* const worlds = gpu_worlds()) {
      worlds->Abort(absl::UnavailableError("its daemon stops"));
    }
    {
      const std::lock_guard lock(sending_);
      gpus_say_no_more_ = true;
    }
    owned_net_.reset();
    const std::lock_guard lock(mutex_);
    events_ = {};
  }

  const NodeInfo& self() const override { return self_; }

  absl::StatusOr<NodeId> Connect(const std::string& address, uint64_t boot_id) override {
    return net_->Connect(address, boot_id);
  }
  void Hold(NodeId node) override {
    // One that has gone down in this moment: its on_down is under way.
    net_->AddReference(node).IgnoreError();
  }
  void Release(NodeId node) override { net_->Release(node); }
  void Send(NodeId node, const v1::PeerMessage& message) override {
    net_->Send(node, message).IgnoreError();  // down: on_down tells
  }

  absl::StatusOr<std::unique_ptr<NodeChannel>> OpenChannel(ChannelOptions wanted) override {
    ucx::CommunicatorOptions options{
        .key = KeyOf(wanted.key), .link_of_rank = {}, .share = std::move(wanted.share)};
    for (const NodeId node : wanted.node_of_rank) {
      std::shared_ptr<ucx::Link> link = node == 0 ? nullptr : LinkOf(node);
      if (node != 0 && link == nullptr) return absl::UnavailableError("a node has gone");
      options.link_of_rank.push_back(std::move(link));
    }
    SPCCL_ASSIGN_OR_RETURN(auto communicator, fabric_->OpenCommunicator(std::move(options)));
    std::unique_ptr<GpuChannel> gpus;
    if (wanted.gpus.has_value()) {
      GpuWorlds* const worlds = gpu_worlds();
      if (worlds == nullptr) return absl::InvalidArgumentError("no GPU of this node was offered");
      const ucx::Key128 key = KeyOf(wanted.key);
      SPCCL_ASSIGN_OR_RETURN(
          gpus, worlds->OpenChannel({key.high, key.low}, *wanted.gpus, wanted.node_of_rank));
      // One that went in this moment was told to no world that was made in it.
      for (const NodeId node : wanted.node_of_rank) {
        if (node == 0 || LinkOf(node) != nullptr) continue;
        worlds->OnNodeDown(node, absl::UnavailableError("it has gone"));
        return absl::UnavailableError("a node has gone");
      }
    }
    return MakeNodeChannel(std::move(communicator), std::move(gpus));
  }

  std::string RouteTo(NodeId node) const override {
    const std::shared_ptr<ucx::Link> link = LinkOf(node);
    return link == nullptr ? "" : link->DescribeRoute();
  }

  void MeasureLink(NodeId node) override {
    const std::shared_ptr<ucx::Link> link = LinkOf(node);
    if (link == nullptr) return;
    link->Measure([this, node] {
      const std::lock_guard lock(mutex_);
      if (events_.on_measured) events_.on_measured(node);
    });
  }
  LinkSpeed SpeedOf(NodeId node) const override {
    const std::shared_ptr<ucx::Link> link = LinkOf(node);
    if (link == nullptr) return {};
    const ucx::LinkCounters counters = link->counters();
    return {.round_trip_ns = counters.round_trip_ns, .bytes_per_second = counters.bytes_per_second};
  }

 private:
  struct Peer {
    NodeInfo info;
    std::optional<ucx::Offer> offered;  // and not used yet
    std::shared_ptr<ucx::Link> link;
    bool link_up = false;
    // What came before the link was up, or before Start.
    std::vector<std::shared_ptr<const v1::PeerMessage>> early;
  };

  PeerNodes() = default;

  GpuWorlds* gpu_worlds() const {
    const std::lock_guard lock(mutex_);
    return gpu_worlds_.get();
  }

  // From any thread, and at any time: worlds end after the connections.
  void SendOfGpus(NodeId node, const v1::PeerMessage& message) {
    const std::lock_guard lock(sending_);
    if (!gpus_say_no_more_) Send(node, message);
  }

  std::shared_ptr<ucx::Link> LinkOf(NodeId node) const {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(node);
    return found == peers_.end() ? nullptr : found->second.link;
  }

  void OnStreamUp(peers::PeerId id, const peers::PeerInfo& info) {
    ucx::Offer offer;
    {
      const std::lock_guard lock(mutex_);
      Peer& peer = peers_[id];
      peer.info = {.name = info.name, .address = info.address, .boot_id = info.boot_id};
      if (self_.boot_id > info.boot_id) return;  // it makes the first offer
      offer = fabric_->MakeOffer();
      peer.offered = offer;
    }
    SendOffer(id, offer);
  }

  void SendOffer(peers::PeerId id, const ucx::Offer& offer) {
    v1::PeerMessage message;
    message.mutable_link_offer()->set_offer(ucx::FormatOffer(offer));
    net_->Send(id, std::move(message)).IgnoreError();
  }

  void OnStreamMessage(peers::PeerId id, v1::PeerMessage message) {
    if (message.kind_case() == v1::PeerMessage::kLinkOffer) {
      const absl::Status status = MakeLink(id, message.link_offer());
      if (!status.ok()) net_->Drop(id, status);
      return;
    }
    // Not by way of the core thread: three of these are in every frame's way.
    if (message.kind_case() == v1::PeerMessage::kNcclControl) {
      if (GpuWorlds* const worlds = gpu_worlds()) worlds->OnControl(id, message.nccl_control());
      return;
    }
    auto shared = std::make_shared<const v1::PeerMessage>(std::move(message));
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_[id];
    if (peer.link_up && events_.on_message) {
      events_.on_message(id, std::move(shared));
    } else {
      peer.early.push_back(std::move(shared));
    }
  }

  absl::Status MakeLink(peers::PeerId id, const v1::LinkOffer& message) {
    SPCCL_ASSIGN_OR_RETURN(const ucx::Offer theirs, ucx::ParseOffer(message.offer()));
    ucx::Offer own;
    std::string name;
    {
      const std::lock_guard lock(mutex_);
      Peer& peer = peers_[id];
      if (peer.link != nullptr) return absl::InvalidArgumentError("it offers a second data link");
      own = peer.offered ? *peer.offered : fabric_->MakeOffer();
      name = peer.info.display();
      const bool answers = peer.offered.has_value();
      peer.offered.reset();
      if (!answers) SendOffer(id, own);
    }
    ucx::ConnectOptions options{.name = name, .own = own, .peer = theirs};
    options.on_up = [this, id] { OnLinkUp(id); };
    options.on_failed = [this, id](const absl::Status& status) {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      net_->Drop(id, Annotate(status, "lost the data link"));
    };
    absl::StatusOr<std::shared_ptr<ucx::Link>> link = fabric_->Connect(std::move(options));
    if (!link.ok()) {
      fabric_->Withdraw(own);
      return link.status();
    }
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_[id];
    peer.link = *std::move(link);
    if (peer.link_up) TellUp(id, &peer);  // it came up while Connect returned
    return absl::OkStatus();
  }

  void OnLinkUp(peers::PeerId id) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(id);
    if (found == peers_.end()) return;
    found->second.link_up = true;
    if (found->second.link != nullptr) TellUp(id, &found->second);
  }

  // Requires mutex_.
  void TellUp(NodeId node, Peer* peer) {
    if (!events_.on_up) return;
    events_.on_up(node, peer->info);
    for (auto& message : std::exchange(peer->early, {})) {
      events_.on_message(node, std::move(message));
    }
  }

  void OnStreamDown(peers::PeerId id, const absl::Status& status) {
    const absl::Status reason =
        status.ok() ? absl::UnavailableError("the connection was not used any more") : status;
    // Before the engine hears of it: operations over GPUs then fail for the same reason.
    if (GpuWorlds* const worlds = gpu_worlds()) worlds->OnNodeDown(id, reason);
    std::shared_ptr<ucx::Link> link;
    {
      const std::lock_guard lock(mutex_);
      const auto found = peers_.find(id);
      if (found != peers_.end()) {
        link = std::move(found->second.link);
        if (found->second.offered) fabric_->Withdraw(*found->second.offered);
        peers_.erase(found);
      }
      if (events_.on_down) events_.on_down(id, reason);
    }
    // With the reason: an operation may learn of it here before its communicator does.
    if (link != nullptr) fabric_->Disconnect(link, reason);
  }

  NodeInfo self_;
  std::unique_ptr<ucx::Fabric> fabric_;
  std::unique_ptr<peers::PeerNet> owned_net_;
  peers::PeerNet* net_ = nullptr;  // the same; callbacks use it until its destructor has ended them

  std::mutex sending_;
  bool gpus_say_no_more_ = false;

  mutable std::mutex mutex_;
  NodeEvents events_;
  bool stopping_ = false;
  std::map<NodeId, Peer> peers_;  // whose stream is up
  std::string why_no_gpus_;
  std::unique_ptr<GpuWorlds> gpu_worlds_;  // once set; null: no GPU is used between nodes
};

}  // namespace

absl::StatusOr<std::unique_ptr<Nodes>> CreatePeerNodes(peers::PeerNetOptions options) {
  return PeerNodes::Create(std::move(options));
}

}  // namespace spccl::daemon
