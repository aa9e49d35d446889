// How all nodes of a communicator come to run each operation by the same plan.
//
// What decides over plans, the tuning, is the same on all nodes for every operation. The daemon of
// rank 0 leads: when it wants another tuning (an operator has set an algorithm, the data's density
// has changed), it tells all (Prepare); each holds its next operation back and says which one that
// is (Prepared); the leader takes the highest of these, from which on nobody has run anything, and
// tells all (Commit). Operations below it run by the old tuning, from it on by the new one. It
// costs a round trip, without which nothing runs, at each change; and nothing at all otherwise.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/message_bytes.h"
#include "daemon/tuning_message.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {

namespace {

// Of a density, before plans are chosen anew: noise must not stop the operations again and again.
constexpr double kNews = 1.5;

bool IsNews(double seen, double known) {
  return seen > 0 && (seen > known * kNews || seen * kNews < known);
}

}  // namespace

void Engine::NoteDensity(NodeGroup& group, OpKind kind, const runtime::OpStats& stats) {
  if (stats.input_elements == 0) return;
  group.seen_densities[static_cast<size_t>(kind)] =
      static_cast<double>(stats.input_nnz) / static_cast<double>(stats.input_elements);
}

bool Engine::LeadsTuning(const NodeGroup& group) {
  return group.here && group.node_of_rank[0] == *group.here;
}

void Engine::ReviewTuning(CommEntry& entry) {
  NodeGroup& group = *entry.group;
  if (!LeadsTuning(group) || group.change || !group.coming_changes.empty()) return;
  policy::Tuning wanted = group.tuning;
  wanted.algorithm = SettingsOf(entry).algorithm;
  for (size_t kind = 0; kind < wanted.densities.size(); ++kind) {
    const double seen = group.seen_densities[kind];
    if (IsNews(seen, wanted.densities[kind])) wanted.densities[kind] = seen;
  }
  if (wanted == group.tuning) return;
  TuningChange change{.epoch = ++group.last_epoch, .tuning = wanted};
  change.from_sequence = entry.comm.next_sequence();
  for (const NodeSeat& seat : group.nodes) {
    if (seat.id != 0) change.waiting_for.insert(seat.id);
  }
  v1::PeerMessage message;
  v1::TuningPrepare& prepare = *message.mutable_tuning_prepare();
  prepare.set_comm_key(BytesOf(group.key));
  prepare.set_epoch(change.epoch);
  *prepare.mutable_tuning() = ToMessage(change.tuning);
  group.change = std::move(change);
  TellNodes(entry, message);
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
  NodeGroup& group = *entry.group;
  if (!group.change || group.change->epoch != prepared.epoch()) return;
  if (group.change->waiting_for.erase(node) == 0) return;
  TuningChange& change = *group.change;
  change.from_sequence = std::max(change.from_sequence, prepared.from_sequence());
  if (!change.waiting_for.empty()) return;
  v1::PeerMessage message;
  v1::TuningCommit& commit = *message.mutable_tuning_commit();
  commit.set_comm_key(prepared.comm_key());
  commit.set_epoch(change.epoch);
  commit.set_from_sequence(change.from_sequence);
  TellNodes(entry, message);
  CommitTuning(entry, change.from_sequence);
}

void Engine::OnTuningCommit(NodeId node, CommEntry& entry, const v1::TuningCommit& commit) {
  NodeGroup& group = *entry.group;
  const bool is_leaders = group.nodes[group.node_of_rank[0]].id == node;
  if (!is_leaders || !group.change || group.change->epoch != commit.epoch()) return;
  CommitTuning(entry, commit.from_sequence());
}

void Engine::CommitTuning(CommEntry& entry, uint64_t from_sequence) {
  NodeGroup& group = *entry.group;
  group.change->from_sequence = from_sequence;
  group.coming_changes.push_back(*std::exchange(group.change, std::nullopt));
  Record("tuning", entry.comm.job_id(), entry.comm.id(), entry.comm.uid(),
         absl::StrCat("communicator ", entry.comm.id(), " runs by ",
                      std::string(policy::NameOf(group.coming_changes.back().tuning.algorithm)),
                      " from operation ", from_sequence, " on"));
  Pump(entry.comm.id());
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
