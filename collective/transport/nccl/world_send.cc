// What a world does as a sender: frames wait for their receiver's opening and for room in the
// window, are announced, and go with a group.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/transport/nccl/world_state.h"

namespace spccl::transport::nccl {
namespace {

WorldState::Edge EdgeOf(const Tag& tag) {
  return {tag.from, tag.to};
}

}  // namespace

uint64_t WorldState::AddOutgoingLocked(const OperationPtr& operation, const Tag& tag,
                                       uint64_t bytes) {
  const auto& ranks = *operation->world_rank_of;
  SPCCL_CHECK(tag.from < ranks.size() && tag.to < ranks.size());
  SPCCL_CHECK(bytes <= operation->options.largest_frame_bytes);
  Outgoing out{.operation = operation,
               .tag = tag,
               .from = GpuOf(*operation, tag.from, tag.lane),
               .to_node = NodeOf(ranks[tag.to]),
               .bytes = bytes,
               .frame = {}};
  SPCCL_CHECK(SlotOf(out.from) != nullptr);
  // Between ranks that share a GPU there is nothing to move.
  SPCCL_CHECK(out.to_node != options.node || GpuOf(*operation, tag.to, tag.lane) != out.from);
  outgoing.emplace(++last_id, std::move(out));
  ++operation->outgoing;
  return last_id;
}

absl::Status WorldState::Send(const OperationPtr& operation, const Tag& tag, Frame frame) {
  Lock lock(mutex);
  if (operation->stopped) return absl::OkStatus();
  if (operation->failure.has_value()) {
    // The sink hears first who was lost: an error of Send would blame the receiver.
    const bool knows = operation->failure_told && operation->in_sink.empty();
    return knows ? operation->failure->reason : absl::OkStatus();
  }
  OutFlow& flow = operation->out[EdgeOf(tag)];
  uint64_t id = 0;
  if (const auto ahead = operation->ahead.find(KeyOf(tag)); ahead != operation->ahead.end()) {
    id = ahead->second.front();
    ahead->second.pop_front();
    if (ahead->second.empty()) operation->ahead.erase(ahead);
    const auto announced = outgoing.find(id);
    if (announced == outgoing.end()) return absl::OkStatus();  // it was declined
    SPCCL_CHECK(announced->second.bytes == frame.size_bytes());
    if (!announced->second.announced) std::erase(flow.ahead, id);
  } else {
    id = AddOutgoingLocked(operation, tag, frame.size_bytes());
  }
  Outgoing& out = outgoing.at(id);
  out.frame = std::move(frame);
  operation->unsent_bytes[tag.to] += CostOf(out.bytes);
  flow.waiting.push_back(id);
  PumpLocked(operation, EdgeOf(tag));
  Leave(&lock);
  return absl::OkStatus();
}

absl::Status WorldState::AnnounceAhead(const OperationPtr& operation,
                                       std::span<const FrameSize> sizes) {
  Lock lock(mutex);
  if (failure.has_value()) return AsLossLocked();
  if (operation->stopped || operation->failure.has_value()) return absl::OkStatus();
  std::set<Edge> edges;
  for (const FrameSize& size : sizes) {
    const uint64_t id = AddOutgoingLocked(operation, size.tag, size.bytes);
    operation->ahead[KeyOf(size.tag)].push_back(id);
    operation->out[EdgeOf(size.tag)].ahead.push_back(id);
    edges.insert(EdgeOf(size.tag));
  }
  for (const Edge& edge : edges) PumpLocked(operation, edge);
  Leave(&lock);
  return absl::OkStatus();
}

bool WorldState::HasRoom(const OperationPtr& operation, uint32_t to) {
  const Lock lock(mutex);
  const auto unsent = operation->unsent_bytes.find(to);
  if (unsent == operation->unsent_bytes.end() || unsent->second < options.window_bytes) return true;
  operation->wants_room.insert(to);
  return false;
}

void WorldState::PumpAllLocked(const OperationPtr& operation) {
  std::vector<Edge> edges;
  for (const auto& [edge, flow] : operation->out) edges.push_back(edge);
  for (const Edge& edge : edges) PumpLocked(operation, edge);
}

// Announces, or says of what was announced that it is there, as far as the window goes. What was
// announced ahead has a half window of its own: it may be there last, so it must hold up nothing.
void WorldState::PumpLocked(const OperationPtr& operation, const Edge& edge) {
  CommunicatorState* const communicator = FindCommunicator(operation->communicator);
  if (communicator == nullptr) return;
  const uint32_t node = NodeOf((*operation->world_rank_of)[edge.second]);
  const Peer& peer = communicator->peers.at(node);
  OutFlow& flow = operation->out[edge];
  if (peer.closed) return DropWaitingLocked(operation, &flow);
  if (!peer.opened.has_value() || *peer.opened < operation->options.sequence) return;
  Message message{.kind = MessageKind::kAnnounce,
                  .communicator = operation->communicator,
                  .sequence = operation->options.sequence};
  const auto add = [&](uint64_t id, bool announces, bool offers) {
    Outgoing& out = outgoing.at(id);
    Announced frame{.id = id, .announces = announces, .offers = offers};
    if (announces) {
      frame.tag = out.tag;
      frame.from = out.from;
      frame.bytes = out.bytes;
      out.announced = true;
    }
    if (offers) {
      out.offered = true;
      CopyHead(out.frame, &frame.head);
    }
    message.frames.push_back(frame);
    if (message.frames.size() < kMostItems) return;
    PostLocked(node, message);
    message.frames.clear();
  };
  while (!flow.ahead.empty()) {
    Outgoing& out = outgoing.at(flow.ahead.front());
    if (flow.ahead_bytes + CostOf(out.bytes) > options.window_bytes / 2) break;
    flow.ahead_bytes += CostOf(out.bytes);
    out.ahead = true;
    add(flow.ahead.front(), true, false);
    flow.ahead.pop_front();
  }
  while (!flow.waiting.empty()) {
    const uint64_t id = flow.waiting.front();
    const Outgoing& out = outgoing.at(id);
    if (!out.announced) {
      if (flow.charged_bytes != 0 &&
          flow.charged_bytes + CostOf(out.bytes) > options.window_bytes) {
        break;
      }
      flow.charged_bytes += CostOf(out.bytes);
    }
    add(id, !out.announced, true);
    flow.waiting.pop_front();
  }
  if (!message.frames.empty()) PostLocked(node, std::move(message));
}

// The peer wants nothing more: what it knows of, it declines.
void WorldState::DropWaitingLocked(const OperationPtr& operation, OutFlow* flow) {
  std::vector<uint64_t> ids;
  for (const uint64_t id : std::exchange(flow->waiting, {})) ids.push_back(id);
  for (const uint64_t id : std::exchange(flow->ahead, {})) ids.push_back(id);
  std::vector<Outgoing> gone;
  for (const uint64_t id : ids) {
    const auto out = outgoing.find(id);
    if (out == outgoing.end() || out->second.announced) continue;
    gone.push_back(std::move(out->second));
    outgoing.erase(out);
  }
  for (const Outgoing& out : gone) ReleaseLocked(out);
  ForgetIfOverLocked(operation);
}

absl::Status WorldState::TakeDeclined(uint32_t node, const Message& message) {
  std::vector<Outgoing> gone;
  for (const uint64_t id : message.ids) {
    const auto out = outgoing.find(id);
    if (out == outgoing.end()) continue;
    if (out->second.to_node != node || !out->second.announced) {
      return absl::InvalidArgumentError("it declines a frame that it was not offered");
    }
    std::erase(out->second.operation->out[EdgeOf(out->second.tag)].waiting, id);
    gone.push_back(std::move(out->second));
    outgoing.erase(out);
  }
  for (const Outgoing& out : gone) {
    ReleaseLocked(out);
    PumpLocked(out.operation, EdgeOf(out.tag));
  }
  return absl::OkStatus();
}

void WorldState::ReleaseLocked(const Outgoing& gone) {
  Operation& operation = *gone.operation;
  OutFlow& flow = operation.out[EdgeOf(gone.tag)];
  if (gone.announced) (gone.ahead ? flow.ahead_bytes : flow.charged_bytes) -= CostOf(gone.bytes);
  if (gone.frame.valid()) {
    uint64_t& unsent = operation.unsent_bytes[gone.tag.to];
    unsent -= CostOf(gone.bytes);
    if (unsent < options.window_bytes / 2 && operation.wants_room.erase(gone.tag.to) > 0) {
      operation.tell_room = true;
      to_tell.push_back(gone.operation);
    }
  }
  --operation.outgoing;
  ForgetIfOverLocked(gone.operation);
}

}  // namespace spccl::transport::nccl
