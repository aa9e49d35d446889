// What the control services see.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/version.h"
#include "daemon/engine.h"
#include "kernels/host/codec.h"

namespace spccl::daemon {
namespace {

std::vector<RankInfo> MembersOf(const Communicator& comm) {
  std::vector<RankInfo> members;
  for (uint32_t rank = 0; rank < comm.ranks(); ++rank) {
    if (!comm.joined(rank)) continue;
    members.push_back(RankInfo{.rank = rank,
                               .session_id = comm.member(rank).session_id,
                               .pid = comm.member(rank).pid,
                               .phase = comm.PhaseOf(rank)});
  }
  return members;
}

std::vector<CommNodeInfo> NodesOf(const CommEntry& entry, const Nodes* nodes) {
  std::vector<CommNodeInfo> infos;
  if (!entry.group) return infos;
  const NodeGroup& group = *entry.group;
  for (uint32_t i = 0; i < group.nodes.size(); ++i) {
    const NodeSeat& seat = group.nodes[i];
    CommNodeInfo info{.name = seat.info.name, .address = {}, .route = {}, .ranks = {}};
    if (group.here != i) info.address = seat.info.address;
    if (seat.id != 0) {
      const LinkSpeed speed = nodes->SpeedOf(seat.id);
      info.route = nodes->RouteTo(seat.id);
      if (group.gpu_generation != 0) info.route += ", GPUs by NCCL";
      info.round_trip_seconds = static_cast<double>(speed.round_trip_ns) * 1e-9;
      info.link_bytes_per_second = speed.bytes_per_second;
    }
    for (uint32_t rank = 0; rank < group.node_of_rank.size(); ++rank) {
      if (group.node_of_rank[rank] == i) info.ranks.push_back(rank);
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace

std::vector<EndedOp> Engine::Uncounted() const {
  std::vector<EndedOp> ops;
  for (const auto& [id, entry] : registry_.comms) {
    const auto& running = entry->running;
    if (running != nullptr && running->ended.load(std::memory_order_acquire)) {
      ops.push_back({.comm_id = id, .sequence = running->sequence});
    }
  }
  return ops;
}

bool Engine::IsCounted(const EndedOp& op) const {
  const auto found = registry_.comms.find(op.comm_id);
  return found == registry_.comms.end() || found->second->running == nullptr ||
         found->second->running->sequence != op.sequence;
}

Snapshot Engine::MakeSnapshot() const {
  Snapshot snapshot{};
  snapshot.core.boot_id = boot_id_;
  snapshot.core.pid = ::getpid();
  snapshot.core.uptime_ns = MonotonicNanos() - began_ns_;
  snapshot.core.version = kVersion;
  snapshot.core.codec_target = std::string(CurrentTarget());
  snapshot.core.draining = draining_;
  snapshot.core.channels = scheduler_->channels();
  snapshot.core.sessions = static_cast<uint32_t>(registry_.sessions.size());
  snapshot.core.mapped_bytes = reaper_.mapped_bytes();
  snapshot.core.counters = registry_.counters;
  snapshot.core.gpus = options_.gpus;
  for (size_t i = 0; i < snapshot.core.gpus.gpus.size(); ++i) {
    snapshot.core.gpus.gpus[i].failure = std::string(hooks_.gpus->at(i).status().message());
  }
  std::map<std::string_view, uint64_t> operations;  // by job, as the next
  for (const auto& [id, entry] : registry_.comms) {
    operations[entry->comm.job_id()] += entry->outstanding_ops();
  }
  std::map<std::string_view, uint32_t> buffers;
  for (const auto& [id, session] : registry_.sessions) {
    buffers[session->peer.job_id] += static_cast<uint32_t>(session->buffers.size());
  }
  for (const auto& [id, job] : registry_.jobs) {
    snapshot.jobs.push_back(JobInfo{.id = id,
                                    .uid = job.uid,
                                    .sessions = job.sessions,
                                    .communicators = job.communicators,
                                    .buffers = buffers[id],
                                    .buffer_bytes = job.buffer_bytes,
                                    .counters = job.counters,
                                    .registered = false,
                                    .share = job.share,
                                    .operations = operations[id],
                                    .channel_ns = *job.channel_time});
  }
  for (const auto& [id, session] : registry_.sessions) {
    for (const auto& [buffer_id, buffer] : session->buffers) {
      snapshot.buffers.push_back(BufferInfo{
          .id = buffer_id,
          .session_id = id,
          .pid = session->peer.pid,
          .uid = session->peer.uid,
          .job_id = session->peer.job_id,
          .kind = std::string(NameOf(buffer.kind())),
          .size_bytes = buffer.size_bytes,
          .uses = buffer.uses,
          .gpu = buffer.gpu_kind == GpuKind::kNone ? std::string() : GpuName(buffer.gpu_id)});
    }
  }
  for (const auto& [id, entry] : registry_.comms) {
    const Communicator& comm = entry->comm;
    snapshot.comms.push_back(CommInfo{.id = id,
                                      .job_id = comm.job_id(),
                                      .uid = comm.uid(),
                                      .ranks = comm.ranks(),
                                      .state = std::string(NameOf(comm.state())),
                                      .error = std::string(comm.error().message()),
                                      .settings = hooks_.settings(comm.job_id(), id, comm.wishes()),
                                      .wishes = comm.wishes(),
                                      .running_algorithm = entry->running_algorithm,
                                      .running_chooser = entry->running_chooser,
                                      .queued_ops = comm.queued_ops(),
                                      .counters = entry->counters,
                                      .last_sends = entry->last_sends,
                                      .members = MembersOf(comm),
                                      .nodes = NodesOf(*entry, nodes_)});
  }
  std::ranges::sort(snapshot.buffers, {}, &BufferInfo::id);
  std::ranges::sort(snapshot.comms, {}, &CommInfo::id);
  return snapshot;
}

}  // namespace spccl::daemon
