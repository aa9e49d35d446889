#include "collective/transport/ucx/fabric.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace spccl::transport::ucx {
namespace {

// Of one link on one worker: what is being received at once, and what may wait for that.
constexpr uint64_t kMostReceivingBytes = FramePool::kLargestFrame;
constexpr size_t kMostHeld = size_t{1} << 16;
constexpr uint32_t kMostOwnWorkers = 64;
constexpr size_t kMostRetired = 256;

}  // namespace

uint32_t DefaultWorkers() {
  return std::thread::hardware_concurrency() < 4 ? 1 : 2;
}

absl::StatusOr<std::unique_ptr<Fabric>> Fabric::Create(FabricOptions options) {
  if (options.workers == 0 || options.workers > kMostOwnWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("a fabric has 1 to ", kMostOwnWorkers, " workers, not ", options.workers));
  }
  std::unique_ptr<Fabric> fabric(new Fabric(std::move(options)));
  SPCCL_ASSIGN_OR_RETURN(fabric->context_, Context::Create(fabric->options_.settings));
  for (uint32_t index = 0; index < fabric->options_.workers; ++index) {
    SPCCL_ASSIGN_OR_RETURN(
        auto worker, Worker::Create(*fabric->context_,
                                    {.index = index,
                                     .most_spin_ns = fabric->options_.most_spin_ns,
                                     .rendezvous_over_tcp = fabric->options_.rendezvous_over_tcp,
                                     .pool = fabric->options_.pool,
                                     .handler = fabric.get()}));
    fabric->addresses_.push_back(worker->address());
    fabric->workers_.push_back(std::move(worker));
  }
  return fabric;
}

Fabric::~Fabric() {
  for (const auto& link : Links()) link->SendAllQueued();
  // All threads first: one worker's may use another worker.
  for (const auto& worker : workers_) worker->Stop();
}

Offer Fabric::MakeOffer() {
  Offer offer{RandomKey(), addresses_};
  const std::lock_guard lock(mutex_);
  peers_.emplace(offer.token, Peer());
  return offer;
}

void Fabric::Withdraw(const Offer& own) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(own.token);
  if (found != peers_.end() && found->second.link == nullptr) peers_.erase(found);
}

absl::StatusOr<std::shared_ptr<Link>> Fabric::Connect(ConnectOptions options) {
  if (options.peer.addresses.empty()) return absl::InvalidArgumentError("the peer has no address");
  std::vector<Worker*> workers;
  for (const auto& worker : workers_) workers.push_back(worker.get());
  auto link = std::make_shared<Link>(Link::Options{.name = std::move(options.name),
                                                   .present = options.peer.token,
                                                   .expect = options.own.token,
                                                   .workers = workers,
                                                   .on_up = std::move(options.on_up),
                                                   .on_failed = std::move(options.on_failed)});
  for (size_t stream = 0; stream < workers.size(); ++stream) {
    absl::StatusOr<std::shared_ptr<Endpoint>> endpoint =
        workers[stream]->Connect(options.peer.addresses[stream % options.peer.addresses.size()],
                                 options.own.token, link->window_);
    if (!endpoint.ok()) {
      link->CloseEndpoints();
      return Annotate(endpoint.status(), link->name());
    }
    link->endpoints_.push_back(*std::move(endpoint));
  }
  bool heard = false;
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(options.own.token);
    if (found == peers_.end() || found->second.link != nullptr) {
      status = absl::FailedPreconditionError("the offer was withdrawn or used already");
    } else if (!found->second.failure.ok()) {
      status = Annotate(found->second.failure, link->name());
    } else {
      heard = found->second.heard;
      found->second.link = link;
    }
  }
  if (!status.ok()) {
    link->CloseEndpoints();
    return status;
  }
  link->SendHello();
  if (heard) link->OnHello(0);
  return link;
}

void Fabric::Disconnect(const std::shared_ptr<Link>& link, const absl::Status& reason) {
  FailLink(link, reason, /*by_us=*/true);
  const std::lock_guard lock(mutex_);
  peers_.erase(link->options_.expect);
  retired_.push_back(link->options_.expect);
  if (retired_.size() > kMostRetired) retired_.pop_front();
}

absl::StatusOr<std::unique_ptr<Communicator>> Fabric::OpenCommunicator(
    CommunicatorOptions options) {
  auto state = std::make_shared<CommunicatorState>();
  state->key = options.key;
  state->link_of_rank = std::move(options.link_of_rank);
  for (const auto& worker : workers_) state->workers.push_back(worker.get());
  for (uint32_t rank = 0; rank < state->link_of_rank.size(); ++rank) {
    const auto& link = state->link_of_rank[rank];
    if (link == nullptr || state->IndexOf(link.get()) < state->links.size()) continue;
    state->links.push_back(link);
    state->rank_of_link.push_back(rank);
  }
  if (options.share == nullptr) options.share = std::make_shared<const LinkShare>();
  for (const auto& link : state->links) link->OpenFlow(state->key, options.share);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(communicators_, [](const auto& entry) { return entry.second.expired(); });
    const auto [entry, fresh] = communicators_.try_emplace(state->key, state);
    if (!fresh) return absl::AlreadyExistsError("the communicator is open already");
  }
  auto communicator = std::make_unique<Communicator>(state);
  // After it is in the table: a link that fails from now on tells it.
  for (const auto& link : state->links) SPCCL_RETURN_IF_ERROR(link->status());
  return communicator;
}

FabricCounters Fabric::counters() const {
  return {.refused = refused_.load(std::memory_order_relaxed),
          .rubbish = rubbish_.load(std::memory_order_relaxed),
          .stray = stray_.load(std::memory_order_relaxed)};
}

std::shared_ptr<Link> Fabric::FindLink(const Key128& token) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(token);
  return found == peers_.end() ? nullptr : found->second.link;
}

// Null if the communicator is not open, or not one of the link's.
std::shared_ptr<CommunicatorState> Fabric::FindState(const Link& link, const Key128& key) const {
  std::shared_ptr<CommunicatorState> state;
  {
    const std::lock_guard lock(mutex_);
    const auto found = communicators_.find(key);
    if (found != communicators_.end()) state = found->second.lock();
  }
  return state == nullptr || state->IndexOf(&link) == state->links.size() ? nullptr : state;
}

std::vector<std::shared_ptr<CommunicatorState>> Fabric::StatesOf(const Link& link) const {
  std::vector<std::shared_ptr<CommunicatorState>> states;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, weak] : communicators_) {
    auto state = weak.lock();
    if (state != nullptr && state->IndexOf(&link) < state->links.size()) {
      states.push_back(std::move(state));
    }
  }
  return states;
}

void Fabric::TellRoom(const Link& link) const {
  for (const auto& state : StatesOf(link)) state->OnRoom();
}

void Fabric::OnRoom(uint32_t /*worker*/, const Key128& link) {
  const std::shared_ptr<Link> roomy = FindLink(link);
  if (roomy == nullptr) return;
  if (roomy->SendQueued()) TellRoom(*roomy);
  roomy->SendProbes();
}

void Fabric::OnMessage(uint32_t worker, const Message& message, Frame frame) {
  const std::shared_ptr<Link> link = FindLink(message.token);
  if (link == nullptr) return OnStranger(message);
  if (!link->status().ok()) return;
  switch (message.kind) {
    case MessageKind::kHello:
      return link->OnHello(message.sequence);
    case MessageKind::kAnswer:
      return link->OnAnswer(message.sequence);
    case MessageKind::kClose:
      if (link->OnPeerClosed(message.communicator)) TellRoom(*link);
      return;
    case MessageKind::kOpen:
      // Also where the communicator is closed here: frames of it may wait still.
      if (link->OnPeerOpened(message.communicator, message.sequence)) TellRoom(*link);
      break;
    case MessageKind::kFrame:
      link->frames_received_.fetch_add(1, std::memory_order_relaxed);
      link->bytes_received_.fetch_add(message.frame_bytes, std::memory_order_relaxed);
      break;
    case MessageKind::kProbe:
      return FailUnlessOk(link, link->OnProbe());
    case MessageKind::kProbed:
      return FailUnlessOk(link, link->OnProbed(message.sequence, message.index));
  }
  const std::shared_ptr<CommunicatorState> state = FindState(*link, message.communicator);
  if (state == nullptr) return OnStray(link.get(), message);
  FailUnlessOk(link, state->OnMessage(worker, link.get(), message, std::move(frame)));
}

void Fabric::FailUnlessOk(const std::shared_ptr<Link>& link, const absl::Status& status) {
  if (!status.ok()) FailLink(link, status);
}

void Fabric::OnRendezvous(uint32_t worker, const Message& message, Rendezvous rendezvous) {
  const std::shared_ptr<Link> link = FindLink(message.token);
  if (link == nullptr || !link->status().ok()) {
    if (link == nullptr) OnStranger(message);
    return workers_[worker]->Refuse(rendezvous);
  }
  StartReceive(worker, link.get(), message, rendezvous);
  if (link->held_[worker].waiting.size() > kMostHeld) {
    FailLink(link, absl::ResourceExhaustedError(absl::StrCat(link->name(), " holds more than ",
                                                             kMostHeld, " frames ready")));
  }
}

// Receives it if it is wanted and there is room; it waits where there is none.
void Fabric::StartReceive(uint32_t worker, Link* link, const Message& message,
                          Rendezvous rendezvous) {
  if (message.kind == MessageKind::kFrame) {
    const std::shared_ptr<CommunicatorState> state = FindState(*link, message.communicator);
    if (state == nullptr || !state->Wants(worker, link, message)) {
      if (state == nullptr) OnStray(link, message);
      return workers_[worker]->Refuse(rendezvous);
    }
  }
  Link::Held& held = link->held_[worker];
  if (held.receiving_bytes > 0 &&
      held.receiving_bytes + message.frame_bytes > kMostReceivingBytes) {
    held.waiting.emplace_back(message, rendezvous);
    return;
  }
  held.receiving_bytes += message.frame_bytes;
  workers_[worker]->Receive(message, rendezvous, options_.pool->Take(message.frame_bytes));
}

void Fabric::EndReceive(uint32_t worker, Link* link, uint64_t bytes) {
  Link::Held& held = link->held_[worker];
  held.receiving_bytes -= bytes;
  // As many as there were; those that still have no room wait again, in their order.
  for (size_t count = held.waiting.size(); count > 0; --count) {
    const auto& first = held.waiting.front();
    if (held.receiving_bytes > 0 &&
        held.receiving_bytes + first.first.frame_bytes > kMostReceivingBytes) {
      return;
    }
    const auto [message, rendezvous] = first;
    held.waiting.pop_front();
    StartReceive(worker, link, message, rendezvous);
  }
}

void Fabric::OnReceived(uint32_t worker, const Message& message, Frame frame) {
  if (const auto link = FindLink(message.token)) {
    EndReceive(worker, link.get(), message.frame_bytes);
  }
  OnMessage(worker, message, std::move(frame));
}

void Fabric::OnReceiveFailed(uint32_t worker, const Message& message, absl::Status reason) {
  const auto link = FindLink(message.token);
  if (link == nullptr) return;
  EndReceive(worker, link.get(), message.frame_bytes);
  FailLink(link, Annotate(reason, link->name()));
}

void Fabric::OnEndpointFailed(uint32_t worker, const Key128& link, absl::Status reason) {
  std::shared_ptr<Link> failed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(link);
    if (found == peers_.end()) return;
    failed = found->second.link;
    if (failed == nullptr) found->second.failure = reason;
  }
  if (failed != nullptr) FailLink(failed, Annotate(reason, failed->name()));
}

void Fabric::FailLink(const std::shared_ptr<Link>& link, const absl::Status& reason, bool by_us) {
  if (!link->Fail(reason)) return;
  if (!by_us) {
    Log(LogLevel::kWarning, "ucx", "a data link failed",
        {{"peer", link->name()}, {"reason", std::string(reason.message())}});
  }
  for (const auto& state : StatesOf(*link)) state->OnLinkFailed(link.get(), reason);
  if (!by_us && link->options_.on_failed) link->options_.on_failed(reason);
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    workers_[worker]->Post(
        [this, link, worker] { RefuseHeld(workers_[worker].get(), worker, link.get()); });
  }
  link->CloseEndpoints();
}

void Fabric::RefuseHeld(Worker* worker, uint32_t index, Link* link) {
  for (const auto& [message, rendezvous] : link->held_[index].waiting) worker->Refuse(rendezvous);
  link->held_[index].waiting.clear();
}

std::vector<std::shared_ptr<Link>> Fabric::Links() const {
  std::vector<std::shared_ptr<Link>> links;
  const std::lock_guard lock(mutex_);
  for (const auto& [token, peer] : peers_) {
    if (peer.link != nullptr) links.push_back(peer.link);
  }
  return links;
}

void Fabric::OnStopping(uint32_t worker) {
  for (const auto& link : Links()) RefuseHeld(workers_[worker].get(), worker, link.get());
}

void Fabric::OnStrayPart(uint32_t /*worker*/, const Message& message) {
  if (FindLink(message.token) == nullptr) OnStranger(message);
}

void Fabric::OnRubbish(uint32_t worker) {
  if (rubbish_.fetch_add(1, std::memory_order_relaxed) == 0) {
    Log(LogLevel::kWarning, "ucx",
        "dropped a message that is none of this protocol (told once; see the counters)");
  }
}

void Fabric::OnStranger(const Message& message) {
  {
    const std::lock_guard lock(mutex_);
    const auto offered = peers_.find(message.token);
    if (offered != peers_.end() && message.kind == MessageKind::kHello) {
      offered->second.heard = true;
      return;
    }
    if (std::find(retired_.begin(), retired_.end(), message.token) != retired_.end()) return;
  }
  if (refused_.fetch_add(1, std::memory_order_relaxed) == 0) {
    Log(LogLevel::kWarning, "ucx",
        "refused a message from a peer that did not prove itself (told once; see the counters)");
  }
}

// Late messages of a closed communicator are usual.
void Fabric::OnStray(Link* link, const Message& message) {
  if (message.kind != MessageKind::kFrame) return;
  stray_.fetch_add(1, std::memory_order_relaxed);
  if (!link->stray_logged_.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kInfo, "ucx", "dropped a frame of a communicator that is not open",
        {{"peer", link->name()}});
  }
}

}  // namespace spccl::transport::ucx
