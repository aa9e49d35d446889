// Communicators over several nodes: how they meet, connect, fail and end.
//
// The root, the daemon that made the unique id, takes all ranks in: its own from its sessions, the
// others from Join. With the last one it sends Form to all nodes that have ranks. Node i connects
// to the nodes before it, opens the communicator's data path when it is connected to all, and says
// Ready; when all have, the root says Go, and every rank's CommInit returns.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/join_check.h"
#include "daemon/tuning_message.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {
namespace {

constexpr uint32_t kLongestText = 256;

std::string BytesOf(const CommKey& key) {
  return std::string(key.begin(), key.end());
}

template <size_t N>
absl::StatusOr<std::array<uint8_t, N>> ArrayOf(const std::string& bytes, const char* what) {
  std::array<uint8_t, N> array;
  if (bytes.size() != N) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of ", bytes.size(), " bytes instead of ", N));
  }
  std::copy(bytes.begin(), bytes.end(), array.begin());
  return array;
}

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
  nodes_->Start(std::move(events));
}

void Engine::OnNodeUp(NodeId node, const NodeInfo& info) {
  registry_.nodes_up[node] = info;
  Record("node-up", "", 0, 0, absl::StrCat("connected to ", info.name, " (", info.address, ")"));
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
    for (uint32_t i = 0; i < group.nodes.size(); ++i) {
      if (group.nodes[i].id != node) continue;
      const auto rank = std::find(group.node_of_rank.begin(), group.node_of_rank.end(), i);
      failure.culprit_rank = static_cast<int>(rank - group.node_of_rank.begin());
      failure.status = absl::Status(
          status.code(), absl::StrCat("lost ", RanksOf(group, i), ": ", status.message()));
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
      if (CommEntry* const entry = entry_of(message.ready().comm_key())) OnReady(node, *entry);
      return;
    case v1::PeerMessage::kGo:
      if (CommEntry* const entry = entry_of(message.go().comm_key())) OpenComm(*entry);
      return;
    case v1::PeerMessage::kCommFailed:
      if (CommEntry* const entry = entry_of(message.comm_failed().comm_key())) {
        const v1::CommFailed& failed = message.comm_failed();
        CommFailure failure;
        failure.origin = failed.origin().substr(0, kLongestText);
        failure.status =
            StatusOf(failed.code(), absl::StrCat(failure.origin, ": ", failed.message()));
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
    default:
      return;  // of the connection, or of a later minor version
  }
}

NodeGroup& Engine::GroupOf(CommEntry& entry, const CommKey& key) {
  if (!entry.group) {
    entry.group.emplace();
    entry.group->key = key;
    registry_.comm_of_key[key] = entry.comm.id();
  }
  return *entry.group;
}

void Engine::Hold(NodeGroup& group, NodeId node) {
  if (!group.peers.insert(node).second) return;
  nodes_->Hold(node);
  group.held.push_back(node);
}

// --- At the root ---

absl::Status Engine::OnJoin(NodeId node, const v1::Join& join) {
  SPCCL_ASSIGN_OR_RETURN(const UniqueIdBytes unique_id,
                         ArrayOf<sizeof(UniqueIdBytes)>(join.unique_id(), "a unique id"));
  SPCCL_ASSIGN_OR_RETURN(const UniqueIdParts parts, ParseUniqueId(unique_id));
  SPCCL_RETURN_IF_ERROR(
      CheckRank(join.rank(), join.ranks(), options_.limits.ranks_per_communicator));
  const auto costs =
      policy::CostsFrom({join.costs().data(), static_cast<size_t>(join.costs_size())});
  if (!costs) return absl::InvalidArgumentError("a node with impossible costs");
  Communicator::Member member;
  member.pid = join.pid();
  member.node = registry_.nodes_up[node].name;
  SPCCL_ASSIGN_OR_RETURN(member.wishes, WishesOf(join.algorithm(), join.codec()));
  SPCCL_ASSIGN_OR_RETURN(
      CommEntry* const entry,
      FindOrMakeComm({.job_id = join.job_id(), .uid = join.uid()}, unique_id, join.ranks()));
  NodeGroup& group = GroupOf(*entry, parts.key);
  if (!group.is_root) group.tuning.costs = options_.costs;
  group.is_root = true;
  group.tuning.costs = policy::SlowerOf(group.tuning.costs, *costs);
  Hold(group, node);
  const int64_t wait_ns =
      join.deadline_ms() == 0 ? options_.init_timeout_ns : int64_t{join.deadline_ms()} * 1'000'000;
  const absl::Status joined =
      entry->comm.Join(join.rank(), join.ranks(), member, MonotonicNanos() + wait_ns);
  if (!joined.ok()) {
    FailComm(entry->comm.id(), {.status = joined});
    return absl::OkStatus();  // all nodes of it were told, this one too
  }
  group.node_of_joined[join.rank()] = node;
  if (entry->comm.state() == Communicator::State::kConnecting) BeginForm(*entry);
  return absl::OkStatus();
}

void Engine::BeginForm(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  unique_ids_.UseUp(entry.unique_id, absl::FailedPreconditionError(
                                         "the unique id has formed a communicator already"));
  std::map<NodeId, uint32_t> index_of;
  for (uint32_t rank = 0; rank < entry.comm.ranks(); ++rank) {
    const NodeId node = entry.comm.member(rank).local() ? 0 : group.node_of_joined[rank];
    const auto [found, is_new] = index_of.emplace(node, static_cast<uint32_t>(group.nodes.size()));
    if (is_new) {
      const NodeInfo& info = node == 0 ? nodes_->self() : registry_.nodes_up[node];
      group.nodes.push_back({.info = info, .id = node});
      if (node == 0) group.here = found->second;
    }
    group.node_of_rank.push_back(found->second);
  }
  v1::PeerMessage message;
  v1::Form& form = *message.mutable_form();
  form.set_unique_id(std::string(entry.unique_id.begin(), entry.unique_id.end()));
  form.set_comm_key(BytesOf(group.key));
  for (const NodeSeat& seat : group.nodes) {
    v1::Node& node = *form.add_nodes();
    node.set_name(seat.info.name);
    node.set_address(seat.info.address);
    node.set_boot_id(seat.info.boot_id);
  }
  for (uint32_t rank = 0; rank < entry.comm.ranks(); ++rank) {
    form.add_node_of_rank(group.node_of_rank[rank]);
    form.add_pid_of_rank(entry.comm.member(rank).pid);
  }
  group.tuning.algorithm =
      hooks_.settings(entry.comm.job_id(), entry.comm.id(), entry.comm.wishes()).algorithm;
  *form.mutable_tuning() = ToMessage(group.tuning);
  TellNodes(entry, message);
  BeginConnect(entry);
}

void Engine::OnReady(NodeId node, CommEntry& entry) {
  if (!entry.group->is_root || entry.comm.state() != Communicator::State::kConnecting) return;
  for (NodeSeat& seat : entry.group->nodes) {
    if (seat.id == node) seat.ready = true;
  }
  CheckAllReady(entry);
}

void Engine::CheckAllReady(CommEntry& entry) {
  std::string missing;
  for (const NodeSeat& seat : entry.group->nodes) {
    if (!seat.ready) absl::StrAppend(&missing, missing.empty() ? "" : ", ", seat.info.name);
  }
  if (!missing.empty()) {
    entry.comm.SetWaitingFor(absl::StrCat(missing, " to be connected with all nodes"));
    return;
  }
  v1::PeerMessage go;
  go.mutable_go()->set_comm_key(BytesOf(entry.group->key));
  TellNodes(entry, go);
  OpenComm(entry);
}

// --- At the other nodes ---

absl::StatusOr<CommEntry*> Engine::FindOrMakeRemoteComm(const Asker& asker,
                                                        const UniqueIdBytes& unique_id,
                                                        uint32_t ranks,
                                                        const UniqueIdParts& parts) {
  if (nodes_ == nullptr) {
    return absl::FailedPreconditionError(
        "the unique id was made by another node's spccld, and this one is not configured to talk "
        "to "
        "others (peers.listen)");
  }
  if (CommEntry* const entry = registry_.FindComm(parts.key)) {
    if (entry->comm.uid() == asker.uid && entry->unique_id == unique_id) return entry;
    return absl::FailedPreconditionError(
        absl::StrCat("the unique id is not known to this spccld for uid ", asker.uid));
  }
  SPCCL_ASSIGN_OR_RETURN(const NodeId root, nodes_->Connect(parts.address, parts.boot_id));
  const absl::StatusOr<CommEntry*> entry = MakeComm(asker, unique_id, ranks, parts.address);
  if (!entry.ok()) {
    nodes_->Release(root);
    return entry;
  }
  NodeGroup& group = GroupOf(**entry, parts.key);
  group.peers.insert(root);
  group.held.push_back(root);
  return entry;
}

void Engine::SendJoin(const CommEntry& entry, const Session& session, const shm::Request& request) {
  v1::PeerMessage message;
  v1::Join& join = *message.mutable_join();
  join.set_unique_id(std::string(entry.unique_id.begin(), entry.unique_id.end()));
  join.set_rank(request.comm_init.rank);
  join.set_ranks(request.comm_init.ranks);
  join.set_uid(session.peer.uid);
  join.set_pid(session.peer.pid);
  join.set_program(session.name);
  join.set_job_id(session.peer.job_id);
  join.set_deadline_ms(request.comm_init.deadline_ms);
  for (const double cost : policy::ToArray(options_.costs)) join.add_costs(cost);
  join.set_algorithm(std::string(shm::TextOf(request.comm_init.algorithm)));
  join.set_codec(std::string(shm::TextOf(request.comm_init.codec)));
  TellNodes(entry, message);  // the root is the only one known yet
}

absl::Status Engine::OnForm(NodeId node, const v1::Form& form) {
  SPCCL_ASSIGN_OR_RETURN(const CommKey key, ArrayOf<sizeof(CommKey)>(form.comm_key(), "a key"));
  CommEntry& entry = *registry_.FindComm(key);
  NodeGroup& group = *entry.group;
  const auto ranks = static_cast<int>(entry.comm.ranks());
  if (group.is_root || !group.nodes.empty() || form.node_of_rank_size() != ranks ||
      form.pid_of_rank_size() != ranks || form.nodes_size() < 1 || form.nodes_size() > ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        registry_.nodes_up[node].name, " says nonsense about the communicator's nodes"));
  }
  for (int i = 0; i < form.nodes_size(); ++i) {
    const v1::Node& said = form.nodes(i);
    NodeSeat seat;
    seat.info = {.name = said.name(), .address = said.address(), .boot_id = said.boot_id()};
    if (said.boot_id() == boot_id_) group.here = i;
    group.nodes.push_back(std::move(seat));
  }
  std::vector<Communicator::Member> members(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const uint32_t of_rank = form.node_of_rank(rank);
    if (of_rank >= group.nodes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " on a node that is not listed"));
    }
    group.node_of_rank.push_back(of_rank);
    members[rank].pid = form.pid_of_rank(rank);
    if (of_rank != group.here) members[rank].node = group.nodes[of_rank].info.name;
  }
  SPCCL_ASSIGN_OR_RETURN(group.tuning, FromMessage(form.tuning()));
  SPCCL_RETURN_IF_ERROR(entry.comm.Meet(members));
  BeginConnect(entry);
  return absl::OkStatus();
}

// --- At all nodes ---

void Engine::BeginConnect(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  for (uint32_t i = 0; group.here && i < *group.here; ++i) {
    const NodeInfo& info = group.nodes[i].info;
    const absl::StatusOr<NodeId> node = nodes_->Connect(info.address, info.boot_id);
    if (!node.ok()) return FailComm(entry.comm.id(), {.status = node.status()});
    group.peers.insert(*node);
    group.held.push_back(*node);
  }
  ContinueConnect(entry);
}

void Engine::ContinueConnect(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  if (group.channel != nullptr || group.said_ready) return;
  if (!group.here) return CheckAllReady(entry);  // a root without ranks waits for the others
  std::string missing;
  for (uint32_t i = 0; i < group.nodes.size(); ++i) {
    NodeSeat& seat = group.nodes[i];
    if (i == *group.here) continue;
    const auto up =
        std::find_if(registry_.nodes_up.begin(), registry_.nodes_up.end(),
                     [&](const auto& known) { return known.second.boot_id == seat.info.boot_id; });
    if (up == registry_.nodes_up.end()) {
      absl::StrAppend(&missing, missing.empty() ? "" : ", ", seat.info.name);
    } else {
      seat.id = up->first;
      Hold(group, seat.id);
    }
  }
  if (!missing.empty()) return entry.comm.SetWaitingFor(absl::StrCat(missing, " to connect"));
  if (entry.across()) {
    if (const absl::Status status = OpenChannel(group); !status.ok()) {
      return FailComm(entry.comm.id(), {.status = status});
    }
  }
  group.said_ready = true;
  if (group.is_root) {
    group.nodes[*group.here].ready = true;
    return CheckAllReady(entry);
  }
  entry.comm.SetWaitingFor("the other nodes to be connected");
  v1::PeerMessage message;
  message.mutable_ready()->set_comm_key(BytesOf(group.key));
  TellNodes(entry, message);
}

absl::Status Engine::OpenChannel(NodeGroup& group) {
  std::vector<NodeId> node_of_rank;
  for (const uint32_t node : group.node_of_rank) node_of_rank.push_back(group.nodes[node].id);
  SPCCL_ASSIGN_OR_RETURN(group.plans, runtime::NodeScope::Create(group.node_of_rank, *group.here));
  SPCCL_ASSIGN_OR_RETURN(group.channel, nodes_->OpenChannel(group.key, node_of_rank));
  return absl::OkStatus();
}

void Engine::OpenComm(CommEntry& entry) {
  if (entry.comm.state() != Communicator::State::kConnecting) return;
  if (entry.across() && entry.group->here && entry.group->channel == nullptr)
    return;  // a Go before our Ready: a lie
  entry.comm.Open();
  AnnounceReady(entry);
  EraseIfAbandoned(entry.comm.id());  // at a root without ranks
}

void Engine::TellNodes(const CommEntry& entry, const v1::PeerMessage& message, NodeId except) {
  for (const NodeId node : entry.group->peers) {
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
  Pump(entry.comm.id());
}

absl::StatusOr<std::unique_ptr<runtime::Task>> Engine::MakeGroupTask(
    CommEntry& entry, const std::shared_ptr<RunningOp>& running,
    std::span<const runtime::RankBuffers> ranks, const policy::Settings& settings) {
  NodeGroup& group = *entry.group;
  const OpDesc& op = running->parts[0].op;
  const runtime::OpenTransport open = [&](uint64_t plan, uint64_t largest_frame_bytes) {
    return group.channel->OpenOperation(op, running->sequence, plan, largest_frame_bytes);
  };
  SPCCL_ASSIGN_OR_RETURN(
      runtime::PlannedTask planned,
      group.plans->MakeTask(
          op, ranks, settings, TuningOf(entry, running->sequence), open,
          [this, running](const runtime::OpResult& result) { OnTaskDone(running, result); }));
  entry.running_algorithm = std::string(policy::NameOf(planned.algorithm));
  return std::move(planned.task);
}

void Engine::EndGroup(CommEntry& entry) {
  if (!entry.group) return;
  entry.group->channel.reset();
  for (const NodeId node : entry.group->held) nodes_->Release(node);
  registry_.comm_of_key.erase(entry.group->key);
}

}  // namespace spccl::daemon
