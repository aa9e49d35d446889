// How all nodes of a communicator come to run each operation by the same plan.
//
// What decides over plans, the tuning, is the same on all nodes for every operation. The daemon of
// rank 0 leads: when it wants another tuning (an operator has set an algorithm or loaded a
// model, the data's density has changed), it tells all (Prepare); each holds its next operation
// back and says which one that is (Prepared); the leader takes the highest of these, from which on
// nobody has run anything, and tells all (Commit). Operations below it run by the old tuning, from
// it on by the new one. It costs a round trip, without which nothing runs, at each change; and
// nothing at all otherwise. A node whose ranks have all left has run all that it ever will, and is
// not asked. A leader that goes away, because its own ranks have all left, takes back what it has
// prepared.
//
// The ways to send (policy/ways.h) need no such care, a frame says its format: each node tries the
// same ones, the leader tells which it saw to be fastest (Lead), and the others go it once they
// hear.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/message_bytes.h"
#include "daemon/tuning_message.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {

namespace {

// From this operation on: a change that is taken back.
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

}  // namespace

void Engine::NoteDensity(NodeGroup& group, OpKind kind, const runtime::OpStats& stats) {
  group.seen_densities[static_cast<size_t>(kind)].Saw(stats.input_nnz, stats.input_elements);
}

bool Engine::LeadsTuning(const NodeGroup& group) {
  return group.here && group.node_of_rank[0] == *group.here;
}

void Engine::LookUpModel(NodeGroup& group) {
  std::shared_ptr<const policy::PlanModel> model = hooks_.plan_model();
  if (model == group.model) return;
  group.table = nullptr;
  if (model != nullptr) {
    const policy::Topology shape = policy::Topology::Of(group.node_of_rank);
    const auto found = model->tables.find({.nodes = shape.nodes, .most_ranks = shape.most_ranks});
    if (found != model->tables.end()) {
      group.table = std::make_shared<const policy::PlanTable>(found->second);
    }
  }
  group.model = std::move(model);
}

void Engine::ReviewTuning(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  if (!LeadsTuning(group) || group.change || !group.coming_changes.empty()) return;
  policy::Tuning wanted = group.tuning;
  wanted.algorithm = SettingsOf(entry).algorithm;
  wanted.slice_bytes = SettingsOf(entry).slice_bytes;
  LookUpModel(group);
  wanted.table = group.table;
  for (size_t kind = 0; kind < wanted.densities.size(); ++kind) {
    policy::DensityWatch& seen = group.seen_densities[kind];
    if (const auto news = seen.News(wanted.densities[kind])) {
      wanted.densities[kind] = *news;
      seen.Taken();
    }
  }
  if (wanted == group.tuning) return;
  TuningChange change{.epoch = ++group.last_epoch, .tuning = wanted};
  change.from_sequence = entry.comm.next_sequence();
  for (uint32_t node = 0; node < group.nodes.size(); ++node) {
    if (group.nodes[node].id == 0) continue;
    if (const auto left_at = LeftAt(entry, node)) {
      change.from_sequence = std::max(change.from_sequence, *left_at);
    } else {
      change.waiting_for.insert(group.nodes[node].id);
    }
  }
  v1::PeerMessage message;
  v1::TuningPrepare& prepare = *message.mutable_tuning_prepare();
  prepare.set_comm_key(BytesOf(group.key));
  prepare.set_epoch(change.epoch);
  *prepare.mutable_tuning() = ToMessage(change.tuning);
  group.change = std::move(change);
  TellNodes(entry, message);
  CommitIfPrepared(entry);
}

std::optional<uint64_t> Engine::LeftAt(const CommEntry& entry, uint32_t node) {
  uint64_t left_at = 0;
  for (uint32_t rank = 0; rank < entry.group->node_of_rank.size(); ++rank) {
    if (entry.group->node_of_rank[rank] != node) continue;
    if (!entry.comm.left(rank)) return std::nullopt;
    left_at = std::max(left_at, entry.comm.left_at(rank));
  }
  return left_at;
}

void Engine::CountAsPrepared(CommEntry& entry, NodeId node, uint64_t from_sequence) {
  NodeGroup& group = *entry.group;
  if (!group.change || group.change->waiting_for.erase(node) == 0) return;
  group.change->from_sequence = std::max(group.change->from_sequence, from_sequence);
  CommitIfPrepared(entry);
}

void Engine::ReviewTuningAfterLeave(CommEntry& entry, uint32_t node) {
  if (!LeadsTuning(*entry.group)) return;
  if (const auto left_at = LeftAt(entry, node)) {
    CountAsPrepared(entry, entry.group->nodes[node].id, *left_at);
  }
}

void Engine::TakeBackTuning(CommEntry& entry) {
  if (!entry.group || !entry.group->change || !LeadsTuning(*entry.group)) return;
  TellCommit(entry, kNever);
}

void Engine::TellCommit(const CommEntry& entry, uint64_t from_sequence) {
  v1::PeerMessage message;
  v1::TuningCommit& commit = *message.mutable_tuning_commit();
  commit.set_comm_key(BytesOf(entry.group->key));
  commit.set_epoch(entry.group->change->epoch);
  commit.set_from_sequence(from_sequence);
  TellNodes(entry, message);
}

void Engine::CommitIfPrepared(CommEntry& entry) {
  const TuningChange& change = *entry.group->change;
  if (!change.waiting_for.empty()) return;
  TellCommit(entry, change.from_sequence);
  CommitTuning(entry, change.from_sequence);
}

absl::Status Engine::OnTuningPrepare(NodeId node, CommEntry& entry,
                                     const v1::TuningPrepare& prepare) {
  NodeGroup& group = *entry.group;
  if (group.nodes[group.node_of_rank[0]].id != node || group.change) {
    return absl::InvalidArgumentError("a change of tuning that nobody may ask for now");
  }
  SPCCL_ASSIGN_OR_RETURN(policy::Tuning tuning, FromMessage(prepare.tuning()));
  group.change = TuningChange{.epoch = prepare.epoch(), .tuning = tuning};
  v1::PeerMessage message;
  v1::TuningPrepared& prepared = *message.mutable_tuning_prepared();
  prepared.set_comm_key(prepare.comm_key());
  prepared.set_epoch(prepare.epoch());
  prepared.set_from_sequence(entry.comm.next_sequence());
  nodes_->Send(node, message);
  return absl::OkStatus();
}

void Engine::OnTuningPrepared(NodeId node, CommEntry& entry, const v1::TuningPrepared& prepared) {
  const NodeGroup& group = *entry.group;
  if (!group.change || group.change->epoch != prepared.epoch()) return;
  CountAsPrepared(entry, node, prepared.from_sequence());
}

void Engine::OnTuningCommit(NodeId node, CommEntry& entry, const v1::TuningCommit& commit) {
  NodeGroup& group = *entry.group;
  const bool is_leaders = group.nodes[group.node_of_rank[0]].id == node;
  if (!is_leaders || !group.change || group.change->epoch != commit.epoch()) return;
  CommitTuning(entry, commit.from_sequence());
}

void Engine::CommitTuning(CommEntry& entry, uint64_t from_sequence) {
  NodeGroup& group = *entry.group;
  if (from_sequence == kNever) {
    group.change.reset();
    return Pump(entry.comm.id());
  }
  group.change->from_sequence = from_sequence;
  group.coming_changes.push_back(*std::exchange(group.change, std::nullopt));
  const policy::Tuning& tuning = group.coming_changes.back().tuning;
  Record("tuning", entry.comm.job_id(), entry.comm.id(), entry.comm.uid(),
         absl::StrCat("communicator ", entry.comm.id(), " runs by ",
                      std::string(policy::NameOf(tuning.algorithm)),
                      tuning.table == nullptr ? "" : ", with a model,", " from operation ",
                      from_sequence, " on"));
  Pump(entry.comm.id());
}

void Engine::TellLead(CommEntry& entry, OpKind kind) {
  NodeGroup& group = *entry.group;
  if (!LeadsTuning(group)) return;
  const auto news = group.plans->TakeNews();
  if (!news) return;
  v1::PeerMessage message;
  v1::Lead& lead = *message.mutable_lead();
  lead.set_comm_key(BytesOf(group.key));
  lead.set_operations(news->operations);
  lead.set_way(news->way);
  TellNodes(entry, message);
  RecordLead(entry, kind, news->way);
}

absl::Status Engine::OnLead(NodeId node, CommEntry& entry, const v1::Lead& lead) {
  NodeGroup& group = *entry.group;
  if (group.nodes[group.node_of_rank[0]].id != node) {
    return absl::InvalidArgumentError("a way to send from a node that does not lead");
  }
  if (!group.plans) return absl::OkStatus();  // a root without ranks
  const auto kind = group.plans->Follow({.operations = lead.operations(), .way = lead.way()});
  if (kind) RecordLead(entry, *kind, lead.way());
  return absl::OkStatus();
}

void Engine::RecordLead(const CommEntry& entry, OpKind kind, const std::string& way) {
  Record("way", entry.comm.job_id(), entry.comm.id(), entry.comm.uid(),
         absl::StrCat("communicator ", entry.comm.id(), " sends ", std::string(NameOf(kind)),
                      " by ", way, ", which was fastest on rank 0's node"));
}

bool Engine::HoldsForTuning(const CommEntry& entry) {
  return entry.group && entry.group->change.has_value();
}

const policy::Tuning& Engine::TuningOf(CommEntry& entry, uint64_t sequence) {
  NodeGroup& group = *entry.group;
  while (!group.coming_changes.empty() && sequence >= group.coming_changes.front().from_sequence) {
    group.tuning = group.coming_changes.front().tuning;
    group.coming_changes.pop_front();
  }
  return group.tuning;
}

}  // namespace spccl::daemon
