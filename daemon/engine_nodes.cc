// Communicators over several nodes, beside their meeting (engine_meeting.cc): who of the other
// daemons is up, what they say, how failures and leavers are told, and how operations are made.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "collective/runtime/cuda/make_gpu_task.h"
#include "daemon/engine.h"
#include "daemon/message_bytes.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {
namespace {

constexpr uint32_t kLongestText = 256;

// Nothing that another daemon says is trusted to be a code of ours.
absl::Status StatusOf(uint32_t code, const std::string& message) {
  const bool known = code > 0 && code <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

v1::PeerMessage FailureMessage(const CommKey& key, const absl::Status& status, int culprit_rank,
                               const std::string& origin) {
  v1::PeerMessage message;
  v1::CommFailed& failed = *message.mutable_comm_failed();
  failed.set_comm_key(BytesOf(key));
  failed.set_culprit(culprit_rank);
  failed.set_code(static_cast<uint32_t>(status.code()));
  failed.set_message(std::string(status.message()));
  failed.set_origin(origin);
  return message;
}

std::string RanksOf(const NodeGroup& group, uint32_t node) {
  std::string text;
  for (uint32_t rank = 0; rank < group.node_of_rank.size(); ++rank) {
    if (group.node_of_rank[rank] != node) continue;
    absl::StrAppend(&text, text.empty() ? "rank " : ", ", rank);
  }
  return text;
}

// A daemon that says that it stops is to ranks of other nodes what one is that was killed: their
// own is there. While the communicator forms it is named itself: its ranks need not be known yet.
absl::Status StatusToldBy(NodeId node, const NodeInfo& info, const NodeGroup& group,
                          absl::Status status) {
  if (!absl::IsUnavailable(status)) return status;
  std::string ranks;
  for (uint32_t i = 0; i < group.nodes.size(); ++i) {
    if (group.nodes[i].id == node) ranks = RanksOf(group, i);
  }
  const std::string lost = ranks.empty() ? absl::StrCat("the daemon on ", info.display()) : ranks;
  return absl::AbortedError(absl::StrCat("lost ", lost, ": ", std::string(status.message())));
}

}  // namespace

void Engine::ListenToNodes() {
  if (nodes_ == nullptr) return;
  NodeEvents events;
  events.on_up = [this](NodeId node, const NodeInfo& info) {
    loop_->Post([this, node, info] { OnNodeUp(node, info); });
  };
  events.on_down = [this](NodeId node, const absl::Status& status) {
    loop_->Post([this, node, status] { OnNodeDown(node, status); });
  };
  events.on_message = [this](NodeId node, std::shared_ptr<const v1::PeerMessage> message) {
    loop_->Post([this, node, message = std::move(message)] { OnNodeMessage(node, *message); });
  };
  events.on_measured = [this](NodeId node) { loop_->Post([this, node] { OnMeasured(node); }); };
  nodes_->Start(std::move(events));
}

void Engine::OnNodeUp(NodeId node, const NodeInfo& info) {
  registry_.nodes_up[node] = info;
  Record("node-up", "", 0, 0, absl::StrCat("connected to ", info.display()));
  std::vector<uint64_t> waiting;
  for (const auto& [key, id] : registry_.comm_of_key) {
    if (registry_.FindComm(id)->comm.state() == Communicator::State::kConnecting) {
      waiting.push_back(id);
    }
  }
  for (const uint64_t id : waiting) {
    if (CommEntry* const entry = registry_.FindComm(id)) ContinueConnect(*entry);
  }
}

void Engine::OnNodeDown(NodeId node, const absl::Status& status) {
  const auto found = registry_.nodes_up.find(node);
  if (found != registry_.nodes_up.end()) {
    Record("node-down", "", 0, 0, std::string(status.message()));
    registry_.nodes_up.erase(found);
  }
  std::vector<uint64_t> broken;
  for (const auto& [key, id] : registry_.comm_of_key) {
    if (registry_.FindComm(id)->group->peers.contains(node)) broken.push_back(id);
  }
  for (const uint64_t id : broken) {
    CommEntry* const entry = registry_.FindComm(id);
    if (entry == nullptr) continue;
    const NodeGroup& group = *entry->group;
    CommFailure failure{.status = status};
    // One that is lost, or is not who it says, is others' failure to this node's ranks, as a rank's
    // death is. What else keeps daemons from meeting (another release, say) keeps its code.
    if (entry->comm.forming()) {
      const bool is_others = absl::IsUnavailable(status) || absl::IsUnauthenticated(status);
      failure.status = Annotate(is_others ? absl::AbortedError(status.message()) : status,
                                "forming the communicator");
    }
    for (uint32_t i = 0; i < group.nodes.size(); ++i) {
      if (group.nodes[i].id != node) continue;
      const auto rank = std::find(group.node_of_rank.begin(), group.node_of_rank.end(), i);
      failure.culprit_rank = static_cast<int>(rank - group.node_of_rank.begin());
      failure.status =
          absl::AbortedError(absl::StrCat("lost ", RanksOf(group, i), ": ", status.message()));
    }
    FailComm(id, failure, node);
  }
}

void Engine::OnNodeMessage(NodeId node, const v1::PeerMessage& message) {
  const auto entry_of = [&](const std::string& bytes) -> CommEntry* {
    const auto key = ArrayOf<sizeof(CommKey)>(bytes, "a communicator's key");
    CommEntry* const entry = key.ok() ? registry_.FindComm(*key) : nullptr;
    // Of a communicator that this node has no part in, or that is gone here: not worth a word.
    return entry != nullptr && entry->group->peers.contains(node) ? entry : nullptr;
  };
  const auto ready_entry_of = [&](const std::string& bytes) -> CommEntry* {
    CommEntry* const entry = entry_of(bytes);
    const bool ready = entry != nullptr && entry->comm.state() == Communicator::State::kReady;
    return ready ? entry : nullptr;
  };
  switch (message.kind_case()) {
    case v1::PeerMessage::kJoin:
      if (const absl::Status status = OnJoin(node, message.join()); !status.ok()) {
        const auto id = ArrayOf<sizeof(UniqueIdBytes)>(message.join().unique_id(), "a unique id");
        const auto parts =
            id.ok() ? ParseUniqueId(*id) : absl::StatusOr<UniqueIdParts>(id.status());
        if (!parts.ok()) return;  // it cannot even be told
        nodes_->Send(node, FailureMessage(parts->key, status, -1, nodes_->self().name));
      }
      return;
    case v1::PeerMessage::kForm:
      if (CommEntry* const entry = entry_of(message.form().comm_key())) {
        const absl::Status status = OnForm(node, message.form());
        if (!status.ok()) FailComm(entry->comm.id(), {.status = status});
      }
      return;
    case v1::PeerMessage::kReady:
      if (CommEntry* const entry = entry_of(message.ready().comm_key())) {
        const absl::Status status = OnReady(node, *entry, message.ready());
        if (!status.ok()) FailComm(entry->comm.id(), {.status = status});
      }
      return;
    case v1::PeerMessage::kGo:
      if (CommEntry* const entry = entry_of(message.go().comm_key())) {
        const absl::Status status = OnGo(node, *entry, message.go());
        if (!status.ok()) FailComm(entry->comm.id(), {.status = status});
      }
      return;
    case v1::PeerMessage::kCommFailed:
      if (CommEntry* const entry = entry_of(message.comm_failed().comm_key())) {
        const v1::CommFailed& failed = message.comm_failed();
        CommFailure failure;
        failure.origin = failed.origin().substr(0, kLongestText);
        failure.status = StatusToldBy(
            node, registry_.nodes_up[node], *entry->group,
            StatusOf(failed.code(), absl::StrCat(failure.origin, ": ", failed.message())));
        const bool is_rank =
            failed.culprit() >= 0 && static_cast<uint32_t>(failed.culprit()) < entry->comm.ranks();
        failure.culprit_rank = is_rank ? failed.culprit() : -1;
        FailComm(entry->comm.id(), failure, node);
      }
      return;
    case v1::PeerMessage::kLeave:
      if (CommEntry* const entry = entry_of(message.leave().comm_key())) {
        OnLeave(node, *entry, message.leave());
      }
      return;
    case v1::PeerMessage::kTuningPrepare:
      if (CommEntry* const entry = ready_entry_of(message.tuning_prepare().comm_key())) {
        const absl::Status status = OnTuningPrepare(node, *entry, message.tuning_prepare());
        if (!status.ok()) FailComm(entry->comm.id(), {.status = status});
      }
      return;
    case v1::PeerMessage::kTuningPrepared:
      if (CommEntry* const entry = ready_entry_of(message.tuning_prepared().comm_key())) {
        OnTuningPrepared(node, *entry, message.tuning_prepared());
      }
      return;
    case v1::PeerMessage::kTuningCommit:
      if (CommEntry* const entry = ready_entry_of(message.tuning_commit().comm_key())) {
        OnTuningCommit(node, *entry, message.tuning_commit());
      }
      return;
    case v1::PeerMessage::kLead:
      if (CommEntry* const entry = ready_entry_of(message.lead().comm_key())) {
        const absl::Status status = OnLead(node, *entry, message.lead());
        if (!status.ok()) FailComm(entry->comm.id(), {.status = status});
      }
      return;
    case v1::PeerMessage::kFlightAsk:
      return OnFlightAsk(node, message.flight_ask());
    case v1::PeerMessage::kFlightAnswer:
      return OnFlightAnswer(node, message.flight_answer());
    default:
      return;  // of the connection, or of a later minor version
  }
}

void Engine::TellNodes(const CommEntry& entry, const v1::PeerMessage& message, NodeId except) {
  for (const auto& [node, hold] : entry.group->peers) {
    if (node != except) nodes_->Send(node, message);
  }
}

// While the communicator forms, nodes may know the root only: it tells them what it hears. Later
// every node tells all.
void Engine::TellFailure(const CommEntry& entry, const CommFailure& failure, NodeId teller) {
  if (!entry.group) return;
  const bool heard = !failure.origin.empty();
  if (heard && !entry.group->is_root) return;
  const std::string& origin = heard ? failure.origin : nodes_->self().name;
  absl::string_view text = failure.status.message();
  if (heard) absl::ConsumePrefix(&text, absl::StrCat(origin, ": "));
  TellNodes(entry,
            FailureMessage(entry.group->key, absl::Status(failure.status.code(), text),
                           failure.culprit_rank, origin),
            teller);
}

void Engine::TellLeave(const CommEntry& entry, uint32_t rank, const std::string& how) {
  if (!entry.group || entry.comm.state() != Communicator::State::kReady) return;
  v1::PeerMessage message;
  v1::Leave& leave = *message.mutable_leave();
  leave.set_comm_key(BytesOf(entry.group->key));
  leave.set_rank(rank);
  leave.set_how(how);
  leave.set_sequence(entry.comm.NextOf(rank));
  TellNodes(entry, message);
}

void Engine::OnLeave(NodeId node, CommEntry& entry, const v1::Leave& leave) {
  const NodeGroup& group = *entry.group;
  const bool is_its_own = leave.rank() < group.node_of_rank.size() &&
                          group.nodes[group.node_of_rank[leave.rank()]].id == node;
  if (!is_its_own || entry.comm.state() != Communicator::State::kReady) return;
  entry.comm.LeaveRemote(leave.rank(), leave.sequence(), leave.how().substr(0, kLongestText));
  const uint64_t comm_id = entry.comm.id();
  ReviewTuningAfterLeave(entry, group.node_of_rank[leave.rank()]);
  Pump(comm_id);
}

absl::StatusOr<std::unique_ptr<runtime::Task>> Engine::MakeGroupTask(
    CommEntry& entry, const std::shared_ptr<RunningOp>& running,
    std::span<const runtime::RankBuffers> ranks, const policy::Settings& settings) {
  NodeGroup& group = *entry.group;
  const OpDesc& op = running->parts[0].op;
  // Daemons that know no worlds do not know this either: to them the plans differ.
  const bool has_world = group.gpu_generation != 0;
  ChannelOperation operation{
      .op = op, .sequence = running->sequence, .on_gpus = has_world && runtime::OnGpu(ranks)};
  const runtime::OpenTransport open = [&](uint64_t plan, uint64_t largest_frame_bytes) {
    operation.plan = plan;
    operation.largest_frame_bytes = largest_frame_bytes;
    return group.channel->OpenOperation(operation);
  };
  runtime::OpenGpuTransport open_gpu;
  if (has_world) {
    open_gpu = [&](uint64_t plan, uint64_t largest_frame_bytes,
                   std::span<runtime::Gpu* const> rails) {
      operation.plan = plan;
      operation.largest_frame_bytes = largest_frame_bytes;
      return group.channel->OpenGpuOperation(operation, rails);
    };
  }
  SPCCL_ASSIGN_OR_RETURN(
      runtime::PlannedTask planned,
      group.plans->MakeTask(
          op, ranks, settings, TuningOf(entry, running->sequence), open,
          [this, running](const runtime::OpResult& result) { OnTaskDone(running, result); },
          hooks_.gpus, open_gpu));
  entry.running_algorithm = std::string(policy::NameOf(planned.algorithm));
  entry.running_way = std::move(planned.way);
  entry.running_chooser = std::string(policy::NameOf(planned.chooser));
  return std::move(planned.task);
}

void Engine::EndGroup(CommEntry& entry) {
  if (!entry.group) return;
  entry.group->channel.reset();
  entry.group->peers.clear();
  registry_.comm_of_key.erase(entry.group->key);
}

}  // namespace spccl::daemon
