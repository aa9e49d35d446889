// The data paths between this daemon and others, over UCX.
//
// How two daemons connect: each makes an Offer and gives it to the other over the control
// connection, on which both have proved who they are; each then calls Connect with both offers.
// Every message carries the token of the receiver's offer; what comes without one is dropped. When
// all links of a communicator's nodes are up on all nodes, each opens the communicator; when all
// have done so, operations may begin (a frame of a communicator that is not open is dropped).
//
// UCX's own protocol is not proof against a malicious host on its network: see
// docs/adr/0006-ucx-transport.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/transport/frame_pool.h"
#include "collective/transport/ucx/communicator.h"
#include "collective/transport/ucx/context.h"
#include "collective/transport/ucx/link.h"
#include "collective/transport/ucx/wire.h"
#include "collective/transport/ucx/worker.h"

namespace spccl::transport::ucx {

// One for every two cores, at most two: docs/adr/0006-ucx-transport.md, Threads.
uint32_t DefaultWorkers();

struct FabricOptions {
  // Each has a thread and its own connection to every peer; lanes are dealt out to them.
  uint32_t workers = DefaultWorkers();
  // The longest time for which a worker's thread looks again and again before it sleeps.
  int64_t most_spin_ns = 50'000;
  // For tests and measurements: see Worker::ChooseProtocol. With UCX 1.13 a peer's death may then
  // abort the process.
  bool rendezvous_over_tcp = false;
  Settings settings = {};                  // over UCX's environment; names without "UCX_"
  FramePool* pool = &FramePool::Shared();  // where frames are received into; outlives the fabric
};

struct ConnectOptions {
  std::string name = {};  // of the peer, for errors and logs
  Offer own;              // that the peer got from us
  Offer peer;             // that we got from it
  // Called once when the peer has proved itself on the link (see Link::up), by a worker's thread.
  std::function<void()> on_up = {};
  // Called once if the link fails by itself, by a worker's thread, after all its communicators were
  // told. May call anything of the fabric but its destructor. That the other side has disconnected
  // is no such failure: the caller has to look whether the peer lives.
  std::function<void(const absl::Status&)> on_failed = {};
};

struct CommunicatorOptions {
  Key128 key;
  std::vector<std::shared_ptr<Link>> link_of_rank;  // null: a rank of this node
  std::shared_ptr<const LinkShare> share = {};      // of its job; null: it is a job by itself
};

struct FabricCounters {
  uint64_t refused = 0;  // messages without a known token
  uint64_t rubbish = 0;  // what was no message at all
  uint64_t stray = 0;    // of communicators that are not open (any more)
};

// Thread-safe. Communicators and their transports are gone before the fabric.
class Fabric final : private WorkerHandler {
 public:
  static absl::StatusOr<std::unique_ptr<Fabric>> Create(FabricOptions options);
  // Sends what was taken, for at most half a second a worker; ends all links.
  ~Fabric() override;

  // For one peer. Valid until Connect or Withdraw.
  Offer MakeOffer();
  void Withdraw(const Offer& own);

  // Does not wait for the peer: see Link::up().
  absl::StatusOr<std::shared_ptr<Link>> Connect(ConnectOptions options);
  // Ends a link, whatever its state; its communicators fail with the reason, which is not OK.
  // on_failed is not called.
  void Disconnect(const std::shared_ptr<Link>& link, const absl::Status& reason);

  // A second communicator of the same key is an error; so is a link that does not work.
  absl::StatusOr<std::unique_ptr<Communicator>> OpenCommunicator(CommunicatorOptions options);

  FabricCounters counters() const;

 private:
  struct Peer {
    std::shared_ptr<Link> link;  // null while there is only the offer
    bool heard = false;          // its hello came before our Connect
    absl::Status failure;        // an endpoint broke before Connect was through
  };

  explicit Fabric(FabricOptions options) : options_(std::move(options)) {}

  void OnMessage(uint32_t worker, const Message& message, Frame frame) override;
  void OnReceived(uint32_t worker, const Message& message, Frame frame) override;
  void OnRendezvous(uint32_t worker, const Message& message, Rendezvous rendezvous) override;
  void OnReceiveFailed(uint32_t worker, const Message& message, absl::Status reason) override;
  void OnStrayPart(uint32_t worker, const Message& message) override;
  void OnRubbish(uint32_t worker) override;
  void OnEndpointFailed(uint32_t worker, const Key128& link, absl::Status reason) override;
  void OnRoom(uint32_t worker, const Key128& link) override;
  void OnStopping(uint32_t worker) override;

  std::shared_ptr<Link> FindLink(const Key128& token) const;
  std::shared_ptr<CommunicatorState> FindState(const Link& link, const Key128& key) const;
  std::vector<std::shared_ptr<CommunicatorState>> StatesOf(const Link& link) const;
  void TellRoom(const Link& link) const;
  std::vector<std::shared_ptr<Link>> Links() const;
  void OnStranger(const Message& message);
  void OnStray(Link* link, const Message& message);
  void StartReceive(uint32_t worker, Link* link, const Message& message, Rendezvous rendezvous);
  void EndReceive(uint32_t worker, Link* link, uint64_t bytes);
  void FailUnlessOk(const std::shared_ptr<Link>& link, const absl::Status& status);
  void FailLink(const std::shared_ptr<Link>& link, const absl::Status& reason, bool by_us = false);
  static void RefuseHeld(Worker* worker, uint32_t index, Link* link);

  const FabricOptions options_;
  std::unique_ptr<Context> context_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::string> addresses_;

  std::atomic<uint64_t> refused_{0}, rubbish_{0}, stray_{0};

  mutable std::mutex mutex_;      // taken last
  std::map<Key128, Peer> peers_;  // by the token that they present
  std::deque<Key128> retired_;    // the last tokens of ended links: what comes late is no news
  std::map<Key128, std::weak_ptr<CommunicatorState>> communicators_;
};

}  // namespace spccl::transport::ucx
