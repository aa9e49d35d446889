// A world's communicators and operations: which are open, here and on the other nodes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/transport/nccl/world_state.h"

namespace spccl::transport::nccl {
namespace {

// Of operations that a peer has opened and we have not, so many plans are kept to be compared.
constexpr size_t kMostSaid = 4096;

}  // namespace

WorldState::CommunicatorState* WorldState::FindCommunicator(const Key128& key) {
  const auto found = communicators.find(key);
  return found == communicators.end() ? nullptr : &found->second;
}

WorldState::OperationPtr WorldState::FindOperation(const Key128& key, uint64_t sequence) {
  CommunicatorState* const communicator = FindCommunicator(key);
  if (communicator == nullptr) return nullptr;
  const auto found = communicator->operations.find(sequence);
  return found == communicator->operations.end() ? nullptr : found->second;
}

uint32_t WorldState::GpuOf(const Operation& operation, uint32_t rank, uint64_t lane) {
  const auto rails = operation.options.rails.find(rank);
  if (rails == operation.options.rails.end()) return (*operation.world_rank_of)[rank];
  return rails->second[lane % rails->second.size()];
}

absl::Status WorldState::OpenCommunicator(const Key128& key, std::vector<uint32_t> world_rank_of) {
  const Lock lock(mutex);
  if (failure.has_value()) return AsLossLocked();
  if (communicators.contains(key)) {
    return absl::AlreadyExistsError("a communicator of this key is open, or not gone yet");
  }
  CommunicatorState communicator;
  for (const uint32_t rank : world_rank_of) {
    if (rank >= options.node_of_rank.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the world has no rank ", rank));
    }
    communicator.peers.try_emplace(NodeOf(rank));
  }
  communicator.world_rank_of =
      std::make_shared<const std::vector<uint32_t>>(std::move(world_rank_of));
  communicators.emplace(key, std::move(communicator));
  return absl::OkStatus();
}

void WorldState::CloseCommunicator(const Key128& key) {
  Lock lock(mutex);
  CommunicatorState* const communicator = FindCommunicator(key);
  if (communicator == nullptr) return;
  communicator->closed = true;
  for (const auto& [node, peer] : communicator->peers) {
    PostLocked(node, {.kind = MessageKind::kClose, .communicator = key});
  }
  // What still has frames to send stays until they are gone.
  if (communicator->operations.empty()) communicators.erase(key);
  Leave(&lock);
}

absl::StatusOr<WorldState::OperationPtr> WorldState::Open(const Key128& key,
                                                          const OperationOptions& given) {
  Lock lock(mutex);
  if (failure.has_value()) return AsLossLocked();
  CommunicatorState* const communicator = FindCommunicator(key);
  SPCCL_CHECK(communicator != nullptr && !communicator->closed);
  SPCCL_CHECK(!communicator->last_opened.has_value() ||
              given.sequence > *communicator->last_opened);
  communicator->last_opened = given.sequence;
  WantLocked();
  for (const auto& [rank, rails] : given.rails) {
    SPCCL_CHECK(rank < communicator->world_rank_of->size() && !rails.empty());
    for (const uint32_t gpu : rails) SPCCL_CHECK(SlotOf(gpu) != nullptr);
  }
  auto operation = std::make_shared<Operation>();
  operation->communicator = key;
  operation->options = given;
  operation->world_rank_of = communicator->world_rank_of;
  communicator->operations.emplace(given.sequence, operation);
  for (auto& [node, peer] : communicator->peers) {
    const auto said = peer.said.find(given.sequence);
    if (said != peer.said.end()) CheckPlanLocked(operation, node, said->second);
    peer.said.erase(peer.said.begin(), peer.said.upper_bound(given.sequence));
  }
  // In any case: who has planned otherwise is to be told so, too.
  for (const auto& [node, peer] : communicator->peers) {
    PostLocked(node, {.kind = MessageKind::kOpen,
                      .communicator = key,
                      .sequence = given.sequence,
                      .plan = given.plan});
  }
  if (operation->failure.has_value()) {
    communicator->operations.erase(given.sequence);
    Leave(&lock);
    return operation->failure->reason;
  }
  Leave(&lock);
  return operation;
}

void WorldState::CheckPlanLocked(const OperationPtr& operation, uint32_t node, uint64_t said) {
  if (said == operation->options.plan) return;
  const auto& ranks = *operation->world_rank_of;
  const auto rank =
      std::find_if(ranks.begin(), ranks.end(), [&](uint32_t one) { return NodeOf(one) == node; });
  const auto index = static_cast<uint32_t>(rank - ranks.begin());
  FailOperationLocked(operation, index,
                      absl::FailedPreconditionError(absl::StrCat(
                          "ranks disagree: rank ", index, " runs plan ", said,
                          "; the ranks of this node run plan ", operation->options.plan)));
}

absl::Status WorldState::TakeOpen(uint32_t node, const Message& message) {
  CommunicatorState* const communicator = FindCommunicator(message.communicator);
  if (communicator == nullptr) return absl::OkStatus();  // closed here, and done with
  const auto peer = communicator->peers.find(node);
  if (peer == communicator->peers.end()) {
    return absl::InvalidArgumentError("it has opened an operation of which it has no rank");
  }
  std::optional<uint64_t>& opened = peer->second.opened;
  if (opened.has_value() && message.sequence <= *opened) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has opened operation ", message.sequence, " after ", *opened));
  }
  opened = message.sequence;
  if (const auto operation = FindOperation(message.communicator, message.sequence)) {
    CheckPlanLocked(operation, node, message.plan);
  } else if (!communicator->closed && peer->second.said.size() < kMostSaid &&
             (!communicator->last_opened || message.sequence > *communicator->last_opened)) {
    peer->second.said.emplace(message.sequence, message.plan);
  }
  std::vector<OperationPtr> all;
  for (const auto& [sequence, operation] : communicator->operations) all.push_back(operation);
  for (const auto& operation : all) PumpAllLocked(operation);
  return absl::OkStatus();
}

absl::Status WorldState::TakeClose(uint32_t node, const Message& message) {
  CommunicatorState* const communicator = FindCommunicator(message.communicator);
  if (communicator == nullptr) return absl::OkStatus();
  const auto peer = communicator->peers.find(node);
  if (peer == communicator->peers.end()) {
    return absl::InvalidArgumentError("it has closed a communicator in which it has no rank");
  }
  peer->second.closed = true;
  std::vector<OperationPtr> all;
  for (const auto& [sequence, operation] : communicator->operations) all.push_back(operation);
  for (const auto& operation : all) PumpAllLocked(operation);  // drops what waits for it
  return absl::OkStatus();
}

void WorldState::FailOperationLocked(const OperationPtr& operation, uint32_t rank,
                                     const absl::Status& why) {
  if (operation->failure.has_value()) return;
  operation->failure = Failure{rank, why};
  to_tell.push_back(operation);
}

void WorldState::Start(const OperationPtr& operation, Sink* sink) {
  const Lock lock(mutex);
  operation->sink = sink;
  // What is there already is told by those who tell: the issuing threads.
  for (const auto& slot : slots) {
    const uint32_t rank = slot->local.rank;
    if (!operation->failure.has_value() && !operation->inbox.contains(rank)) continue;
    slot->local.issuer->Post([self = shared_from_this(), operation, rank] {
      Lock relock(self->mutex);
      self->Tell(&relock, operation);
      self->Deliver(&relock, operation, rank);
    });
  }
}

void WorldState::Stop(const OperationPtr& operation) {
  Lock lock(mutex);
  operation->stopped = true;
  changed.wait(lock, [&] {
    return std::all_of(operation->in_sink.begin(), operation->in_sink.end(),
                       [](std::thread::id id) { return id == std::this_thread::get_id(); });
  });
  operation->sink = nullptr;
  operation->inbox.clear();
  DeclineAllLocked(operation);
  // Sizes of what is not sent any more: who has no frame cannot wait to be rid of it.
  for (auto& [edge, flow] : operation->out) {
    for (const uint64_t id : std::exchange(flow.ahead, {})) {
      outgoing.erase(id);
      --operation->outgoing;
    }
  }
  ForgetIfOverLocked(operation);
  Leave(&lock);
}

void WorldState::LeaveSinkLocked(Operation* operation) {
  auto& in_sink = operation->in_sink;
  in_sink.erase(std::find(in_sink.begin(), in_sink.end(), std::this_thread::get_id()));
  if (operation->stopped) changed.notify_all();
}

// Stopped, and all that it sent is gone.
void WorldState::ForgetIfOverLocked(const OperationPtr& operation) {
  if (!operation->stopped || operation->outgoing > 0) return;
  CommunicatorState* const communicator = FindCommunicator(operation->communicator);
  if (communicator == nullptr) return;
  const auto found = communicator->operations.find(operation->options.sequence);
  if (found == communicator->operations.end() || found->second != operation) return;
  communicator->operations.erase(found);
  if (communicator->closed && communicator->operations.empty()) {
    communicators.erase(operation->communicator);
  }
}

}  // namespace spccl::transport::nccl
