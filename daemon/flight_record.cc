#include "daemon/flight_record.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace spccl::daemon {
namespace {

using runtime::TaskLook;

// Of those that wait. Far behind the head nothing is late yet.
constexpr size_t kMostWaiting = 16;

std::string StateOf(const Communicator& comm) {
  constexpr const char* kNames[] = {"forming", "connecting", "ready", "failed"};
  return kNames[static_cast<int>(comm.state())];
}

void AddMembers(const Communicator& comm, v1::FlightRecord* record) {
  for (uint32_t rank = 0; rank < comm.ranks(); ++rank) {
    if (!comm.joined(rank)) continue;
    const Communicator::Member& member = comm.member(rank);
    v1::FlightRank& out = *record->add_members();
    out.set_rank(rank);
    out.set_pid(member.pid);
    out.set_node(member.node);
    out.set_left(comm.left(rank));
    if (member.local()) out.set_next_sequence(comm.NextOf(rank));
  }
}

void AddNodes(const NodeGroup& group, const Nodes* nodes, v1::FlightRecord* record) {
  for (uint32_t i = 0; i < group.nodes.size(); ++i) {
    const NodeSeat& seat = group.nodes[i];
    v1::FlightNode& out = *record->add_nodes();
    out.set_name(seat.info.name);
    if (group.here != i) out.set_address(seat.info.address);
    if (seat.id != 0) {
      const LinkSpeed speed = nodes->SpeedOf(seat.id);
      out.set_route(nodes->RouteTo(seat.id));
      out.set_round_trip_seconds(static_cast<double>(speed.round_trip_ns) * 1e-9);
      out.set_link_bytes_per_second(speed.bytes_per_second);
    }
    for (uint32_t rank = 0; rank < group.node_of_rank.size(); ++rank) {
      if (group.node_of_rank[rank] == i) out.add_ranks(rank);
    }
  }
}

void AddPost(uint32_t rank, int64_t posted_ns, v1::FlightOp* op) {
  v1::FlightPost& post = *op->add_posts();
  post.set_rank(rank);
  post.set_posted_ns(posted_ns);
}

void AddEnded(const FlightEntry& entry, const std::vector<uint32_t>& ranks, v1::FlightOp* op) {
  op->set_sequence(entry.sequence);
  op->set_what(Describe(entry.op));
  op->set_algorithm(entry.algorithm);
  for (size_t i = 0; i < ranks.size() && i < entry.posted_ns.size(); ++i) {
    AddPost(ranks[i], entry.posted_ns[i], op);
  }
  op->set_began_ns(entry.began_ns);
  op->set_ended_ns(entry.ended_ns);
  op->set_error(std::string(entry.status.message()));
  op->set_dense_bytes(entry.dense_bytes);
  op->set_wire_bytes(entry.wire_bytes);
  for (int format = 0; format < kFormatCount; ++format) {
    if (entry.sends_by_format[format] == 0) continue;
    v1::FlightCount& sends = *op->add_sends_by_format();
    sends.set_name(std::string(NameOf(static_cast<Format>(format))));
    sends.set_count(entry.sends_by_format[format]);
  }
  op->set_input_nnz(entry.input_nnz);
  op->set_input_elements(entry.input_elements);
  op->set_result_nnz(entry.result_nnz);
  op->set_result_elements(entry.result_elements);
  op->set_encode_ns(entry.encode_ns);
  op->set_send_ns(entry.send_ns);
  op->set_reduce_ns(entry.reduce_ns);
  op->set_receive_wait_ns(entry.receive_wait_ns);
  op->set_room_wait_ns(entry.room_wait_ns);
}

v1::FlightDoing::Kind KindOf(TaskLook::Doing doing) {
  switch (doing) {
    case TaskLook::Doing::kWaitsForFrame:
      return v1::FlightDoing::KIND_WAITS_FOR_FRAME;
    case TaskLook::Doing::kWaitsForRoom:
      return v1::FlightDoing::KIND_WAITS_FOR_ROOM;
    case TaskLook::Doing::kWaitsForSlice:
      return v1::FlightDoing::KIND_WAITS_FOR_SLICE;
    case TaskLook::Doing::kQueued:
      return v1::FlightDoing::KIND_QUEUED;
    case TaskLook::Doing::kRuns:
      return v1::FlightDoing::KIND_RUNS;
  }
  return v1::FlightDoing::KIND_UNSPECIFIED;
}

void AddRunning(const CommEntry& entry, v1::FlightRecord* record) {
  const RunningOp& running = *entry.running;
  v1::FlightOp& op = *record->mutable_running();
  op.set_sequence(running.sequence);
  op.set_algorithm(entry.running_algorithm);
  op.set_began_ns(running.began_ns);
  if (!running.parts.empty()) op.set_what(Describe(running.parts[0].op));
  for (size_t i = 0; i < running.parts.size(); ++i) {
    AddPost(running.ranks[i], running.parts[i].posted_ns, &op);
  }
  if (!running.task) return;
  const TaskLook look = running.task->Look();
  record->set_progress(look.progress);
  record->set_taken(look.taken);
  record->set_total(look.total);
  for (const TaskLook::Line& line : look.lines) {
    v1::FlightDoing& doing = *record->add_doing();
    doing.set_kind(KindOf(line.doing));
    if (line.rank != runtime::kNoRank) doing.set_rank(line.rank);
    if (line.peer != runtime::kNoRank) doing.set_peer(line.peer);
    doing.set_step(std::string(line.step));
    doing.set_count(line.count);
    doing.set_since_ns(line.since_ns);
  }
}

void AddWaiting(const Communicator& comm, v1::FlightRecord* record) {
  for (const Communicator::Waiting& waiting : comm.WaitingOps(kMostWaiting)) {
    v1::FlightOp& op = *record->add_waiting();
    op.set_sequence(waiting.sequence);
    if (waiting.op != nullptr) op.set_what(Describe(*waiting.op));
    for (const auto& [rank, posted_ns] : waiting.posted) AddPost(rank, posted_ns, &op);
  }
}

v1::FlightSpan ToProto(const runtime::Span& span, uint32_t channel, uint64_t sequence) {
  v1::FlightSpan out;
  out.set_kind(static_cast<v1::FlightSpan::Kind>(static_cast<int>(span.kind) + 1));
  out.set_sequence(sequence);
  out.set_channel(channel);
  out.set_begin_ns(span.begin_ns);
  out.set_duration_ns(span.duration_ns);
  out.set_bytes(span.bytes);
  if (span.rank != runtime::kNoRank) out.set_rank(span.rank);
  if (span.peer != runtime::kNoRank) out.set_peer(span.peer);
  out.set_lane(span.lane);
  out.set_chunk(span.chunk);
  out.set_format(static_cast<uint32_t>(span.format));
  out.set_all_gather(span.phase == Phase::kAllGather);
  out.set_inter(span.link == policy::Link::kInter);
  if (span.density >= 0) out.set_density(span.density);
  return out;
}
static_assert(static_cast<int>(runtime::SpanKind::kLocal) + 1 == v1::FlightSpan::KIND_LOCAL);
static_assert(static_cast<int>(runtime::SpanKind::kWaitRoom) + 1 == v1::FlightSpan::KIND_WAIT_ROOM);
static_assert(runtime::kSpanKindCount + 1 == v1::FlightSpan::Kind_ARRAYSIZE);

}  // namespace

FlightDraft DraftFlight(const CommEntry& entry, const Nodes* nodes) {
  const Communicator& comm = entry.comm;
  FlightDraft draft;
  v1::FlightRecord& record = draft.record;
  record.set_comm_id(comm.id());
  record.set_job_id(comm.job_id());
  record.set_uid(comm.uid());
  record.set_ranks(comm.ranks());
  record.set_state(StateOf(comm));
  record.set_error(std::string(comm.error().message()));
  record.set_next_sequence(comm.next_sequence());
  if (comm.forming()) record.set_forming(comm.FormingFor());
  record.set_now_ns(MonotonicNanos());
  record.set_unix_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count());
  AddMembers(comm, &record);
  if (entry.group) AddNodes(*entry.group, nodes, &record);
  for (const FlightEntry* ended : entry.flight.Entries()) {
    draft.sequence_of[ended->operation] = ended->sequence;
    AddEnded(*ended, comm.local_ranks(), record.add_ended());
  }
  if (entry.running) {
    draft.sequence_of[entry.running->operation] = entry.running->sequence;
    AddRunning(entry, &record);
  }
  AddWaiting(comm, &record);
  return draft;
}

void AddSpans(const FlightSpans& spans, FlightDraft* draft) {
  std::vector<v1::FlightSpan> mine;
  for (const auto& [channel, of_channel] : spans) {
    for (const runtime::Span& span : of_channel) {
      const auto found = draft->sequence_of.find(span.operation);
      if (found == draft->sequence_of.end()) continue;
      mine.push_back(ToProto(span, channel, found->second));
    }
  }
  std::stable_sort(mine.begin(), mine.end(),
                   [](const auto& a, const auto& b) { return a.begin_ns() < b.begin_ns(); });
  const size_t first = mine.size() > kMostSpans ? mine.size() - kMostSpans : 0;
  for (size_t i = first; i < mine.size(); ++i) *draft->record.add_spans() = std::move(mine[i]);
}

std::string ProcessStateOf(const std::string& stat) {
  // "123 (any name, also with ) in it) S 1 ..."
  const size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 >= stat.size()) return "";
  switch (stat[end_of_name + 2]) {
    case 'R':
      return "running";
    case 'S':
    case 'I':
      return "sleeping";
    case 'D':
      return "waiting for a device";
    case 'T':
      return "stopped";
    case 't':
      return "traced";
    case 'Z':
    case 'X':
      return "gone";
    default:
      return "";
  }
}

void AddProcesses(v1::FlightRecord* record) {
  for (v1::FlightRank& member : *record->mutable_members()) {
    if (!member.node().empty() || member.pid() <= 0) continue;
    std::ifstream file(absl::StrCat("/proc/", member.pid(), "/stat"));
    // Not by iterators, which throw where the process ends between the opening and the reading.
    std::string stat;
    std::getline(file, stat, '\0');
    const bool gone = stat.empty() && ::kill(member.pid(), 0) != 0 && errno == ESRCH;
    member.set_process(gone ? "gone" : ProcessStateOf(stat));
  }
}

}  // namespace spccl::daemon
