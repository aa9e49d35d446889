// How a communicator over several nodes comes about.
//
// The root, the daemon that made the unique id, takes all ranks in: its own from its sessions, the
// others from Join. With the last one it sends Form to all nodes that have ranks. Node i connects
// to the nodes before it, opens the communicator's data path when it is connected to all, measures
// its link to the next node, and says Ready; when all have, the root says Go, with the slowest
// costs, and every rank's CommInit returns.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/join_check.h"
#include "daemon/message_bytes.h"
#include "daemon/tuning_message.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {
namespace {

// For the link to the next node. What has been seen of it by then is what counts.
constexpr int64_t kMeasureNs = 1'000'000'000;

policy::Costs SlowestCosts(const NodeGroup& group, const policy::Costs& defaults) {
  std::vector<NodeCosts> all;
  for (const NodeSeat& seat : group.nodes) all.push_back(seat.costs);
  return CommonCosts(all, defaults);
}

}  // namespace

NodeGroup& Engine::GroupOf(CommEntry& entry, const CommKey& key) {
  if (!entry.group) {
    entry.group.emplace();
    entry.group->key = key;
    registry_.comm_of_key[key] = entry.comm.id();
  }
  return *entry.group;
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
  SPCCL_ASSIGN_OR_RETURN(GpuOffer gpus, FromMessage(join.gpu_offer()));
  Communicator::Member member;
  member.pid = join.pid();
  member.node = registry_.nodes_up[node].name;
  SPCCL_ASSIGN_OR_RETURN(member.wishes, WishesOf(join.algorithm(), join.codec()));
  SPCCL_ASSIGN_OR_RETURN(
      CommEntry* const entry,
      FindOrMakeComm({.job_id = join.job_id(), .uid = join.uid()}, unique_id, join.ranks()));
  NodeGroup& group = GroupOf(*entry, parts.key);
  group.is_root = true;
  group.costs_of_joined[node] = {.costs = *costs, .machine = join.machine()};
  group.gpus_of_joined[node] = std::move(gpus);
  group.peers.try_emplace(node, nodes_, node);
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
  group.costs_of_joined[0] = {.costs = options_.costs, .machine = options_.machine};
  std::map<NodeId, uint32_t> index_of;
  for (uint32_t rank = 0; rank < entry.comm.ranks(); ++rank) {
    const NodeId node = entry.comm.member(rank).local() ? 0 : group.node_of_joined[rank];
    const auto [found, is_new] = index_of.emplace(node, static_cast<uint32_t>(group.nodes.size()));
    if (is_new) {
      const NodeInfo& info = node == 0 ? nodes_->self() : registry_.nodes_up[node];
      group.nodes.push_back({.info = info, .id = node, .costs = group.costs_of_joined[node]});
      if (node == 0) group.here = found->second;
    }
    group.node_of_rank.push_back(found->second);
  }
  ChooseGpuWorld(group);
  v1::PeerMessage message;
  v1::Form& form = *message.mutable_form();
  form.set_unique_id(std::string(entry.unique_id.begin(), entry.unique_id.end()));
  form.set_comm_key(BytesOf(group.key));
  for (const NodeSeat& seat : group.nodes) {
    v1::Node& node = *form.add_nodes();
    node.set_name(seat.info.name);
    node.set_address(seat.info.address);
    node.set_boot_id(seat.info.boot_id);
    node.set_gpus(seat.gpus);
  }
  form.set_gpu_generation(group.gpu_generation);
  for (uint32_t rank = 0; rank < entry.comm.ranks(); ++rank) {
    form.add_node_of_rank(group.node_of_rank[rank]);
    form.add_pid_of_rank(entry.comm.member(rank).pid);
  }
  group.tuning.algorithm = SettingsOf(entry).algorithm;
  group.tuning.costs = SlowestCosts(group, options_.costs);
  *form.mutable_tuning() = ToMessage(group.tuning);
  TellNodes(entry, message);
  BeginConnect(entry);
}

// Where all nodes can, frames between GPUs go through a world of theirs.
void Engine::ChooseGpuWorld(NodeGroup& group) {
  group.gpus_of_joined[0] = nodes_->OfferGpus();
  std::vector<GpuOffering> offers;
  for (const NodeSeat& seat : group.nodes) {
    offers.push_back({.name = seat.info.name,
                      .boot_id = seat.info.boot_id,
                      .offer = group.gpus_of_joined[seat.id]});
  }
  const absl::StatusOr<uint64_t> generation = AgreeOnWorld(offers);
  if (!generation.ok()) {
    group.why_no_world = std::string(generation.status().message());
    return;
  }
  group.gpu_generation = *generation;
  for (size_t i = 0; i < offers.size(); ++i) group.nodes[i].gpus = offers[i].offer.gpus;
}

absl::Status Engine::OnReady(NodeId node, CommEntry& entry, const v1::Ready& ready) {
  if (!entry.group->is_root || entry.comm.state() != Communicator::State::kConnecting) {
    return absl::OkStatus();
  }
  SPCCL_RETURN_IF_ERROR(CheckLink(ready.alpha(), ready.link_rate()));
  for (NodeSeat& seat : entry.group->nodes) {
    if (seat.id != node) continue;
    seat.ready = true;
    seat.costs.alpha = ready.alpha();
    seat.costs.link_rate = ready.link_rate();
  }
  CheckAllReady(entry);
  return absl::OkStatus();
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
  entry.group->tuning.costs = SlowestCosts(*entry.group, options_.costs);
  v1::PeerMessage message;
  v1::Go& go = *message.mutable_go();
  go.set_comm_key(BytesOf(entry.group->key));
  for (const double cost : policy::ToArray(entry.group->tuning.costs)) go.add_costs(cost);
  TellNodes(entry, message);
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
  SPCCL_ASSIGN_OR_RETURN(NodeHold root, NodeHold::Connect(nodes_, parts.address, parts.boot_id));
  SPCCL_ASSIGN_OR_RETURN(CommEntry* const entry, MakeComm(asker, unique_id, ranks, parts.address));
  NodeGroup& group = GroupOf(*entry, parts.key);
  group.root = root.node();
  group.peers.try_emplace(group.root, std::move(root));
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
  join.set_machine(options_.machine);
  *join.mutable_gpu_offer() = ToMessage(nodes_->OfferGpus());
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
    seat.gpus = said.gpus();
    if (form.gpu_generation() != 0 && (seat.gpus == 0 || seat.gpus > kMostGpusOfNode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a world of GPUs with ", seat.gpus, " of ", said.name()));
    }
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
  SPCCL_RETURN_IF_ERROR(CheckGeneration(form.gpu_generation()));
  group.gpu_generation = form.gpu_generation();
  SPCCL_ASSIGN_OR_RETURN(group.tuning, FromMessage(form.tuning()));
  SPCCL_RETURN_IF_ERROR(entry.comm.Meet(members));
  BeginConnect(entry);
  return absl::OkStatus();
}

absl::Status Engine::OnGo(NodeId node, CommEntry& entry, const v1::Go& go) {
  NodeGroup& group = *entry.group;
  // Only the root says Go, once, and not before our Ready: anything else is a lie.
  if (node != group.root || !group.said_ready ||
      entry.comm.state() != Communicator::State::kConnecting) {
    return absl::OkStatus();
  }
  const auto costs = policy::CostsFrom({go.costs().data(), static_cast<size_t>(go.costs_size())});
  if (!costs) return absl::InvalidArgumentError("a communicator with impossible costs");
  group.tuning.costs = *costs;
  OpenComm(entry);
  return absl::OkStatus();
}

// --- At all nodes ---

void Engine::BeginConnect(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  for (uint32_t i = 0; group.here && i < *group.here; ++i) {
    const NodeInfo& info = group.nodes[i].info;
    absl::StatusOr<NodeHold> hold = NodeHold::Connect(nodes_, info.address, info.boot_id);
    if (!hold.ok()) return FailComm(entry.comm.id(), {.status = hold.status()});
    const auto node = hold->node();
    group.peers.try_emplace(node, *std::move(hold));
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
      group.peers.try_emplace(seat.id, nodes_, seat.id);
    }
  }
  if (!missing.empty()) return entry.comm.SetWaitingFor(absl::StrCat(missing, " to connect"));
  if (entry.across()) {
    if (const absl::Status status = OpenChannel(entry); !status.ok()) {
      return FailComm(entry.comm.id(), {.status = status});
    }
    return BeginMeasure(entry);
  }
  SayReady(entry);
}

// In a ring, so that every node sends to one and hears from one at a time, however many there are.
NodeId Engine::NextNode(const NodeGroup& group) {
  return group.nodes[(*group.here + 1) % group.nodes.size()].id;
}

void Engine::BeginMeasure(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  group.measure_deadline_ns = MonotonicNanos() + kMeasureNs;
  const NodeId next = NextNode(group);
  entry.comm.SetWaitingFor(
      absl::StrCat("the link to ", registry_.nodes_up[next].name, " to be measured"));
  nodes_->MeasureLink(next);
}

void Engine::OnMeasured(NodeId node) {
  EndMeasures([node](const NodeGroup& group) { return NextNode(group) == node; });
}

void Engine::EndMeasures(const std::function<bool(const NodeGroup&)>& is_over) {
  std::vector<uint64_t> over;
  for (const auto& [key, id] : registry_.comm_of_key) {
    const CommEntry& entry = *registry_.FindComm(id);
    if (entry.comm.state() != Communicator::State::kConnecting) continue;
    if (entry.group->measure_deadline_ns != 0 && is_over(*entry.group)) over.push_back(id);
  }
  for (const uint64_t id : over) {
    if (CommEntry* const entry = registry_.FindComm(id)) SayReady(*entry);
  }
}

void Engine::SayReady(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  const LinkSpeed speed = entry.across() ? nodes_->SpeedOf(NextNode(group)) : LinkSpeed();
  const double alpha = static_cast<double>(speed.round_trip_ns) / 2 * 1e-9;
  group.measure_deadline_ns = 0;
  group.said_ready = true;
  if (group.is_root) {
    NodeSeat& seat = group.nodes[*group.here];
    seat.ready = true;
    seat.costs.alpha = alpha;
    seat.costs.link_rate = speed.bytes_per_second;
    return CheckAllReady(entry);
  }
  entry.comm.SetWaitingFor("the other nodes to be connected");
  v1::PeerMessage message;
  v1::Ready& ready = *message.mutable_ready();
  ready.set_comm_key(BytesOf(group.key));
  ready.set_alpha(alpha);
  ready.set_link_rate(speed.bytes_per_second);
  TellNodes(entry, message);
}

absl::Status Engine::OpenChannel(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  ChannelOptions options{.key = group.key,
                         .node_of_rank = {},
                         .share = registry_.jobs[entry.comm.job_id()].link_share,
                         .gpus = std::nullopt};
  for (const uint32_t node : group.node_of_rank) {
    options.node_of_rank.push_back(group.nodes[node].id);
  }
  if (group.gpu_generation != 0) {
    options.gpus.emplace().generation = group.gpu_generation;
    for (const NodeSeat& seat : group.nodes) {
      options.gpus->nodes.push_back({.id = seat.id,
                                     .boot_id = seat.info.boot_id,
                                     .gpus = seat.gpus,
                                     .name = seat.info.display()});
    }
  }
  SPCCL_ASSIGN_OR_RETURN(group.plans, runtime::NodeScope::Create(group.node_of_rank, *group.here));
  SPCCL_ASSIGN_OR_RETURN(group.channel, nodes_->OpenChannel(std::move(options)));
  return absl::OkStatus();
}

void Engine::OpenComm(CommEntry& entry) {
  if (entry.comm.state() != Communicator::State::kConnecting) return;
  entry.comm.Open();
  AnnounceReady(entry);
  EraseIfAbandoned(entry.comm.id());  // at a root without ranks
}

}  // namespace spccl::daemon
