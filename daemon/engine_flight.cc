// The flight recorder: what is put down of operations, and who gets to read it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/message_bytes.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {
namespace {

// Operations that fail one after the other on a communicator that goes on fill no disk.
constexpr int64_t kKeepEveryNs = 10'000'000'000;

// What has ended is of little use to a node that asks why an operation does not.
constexpr int kEndedForOthers = 4;

}  // namespace

void Engine::OpenFlight(CommEntry& entry) {
  entry.flight.Open(options_.flight.operations, entry.comm.local_ranks().size());
}

void Engine::LogFlight(CommEntry& entry, const runtime::OpResult& result) {
  const RunningOp& running = *entry.running;
  if (FlightEntry* const log = entry.flight.Next()) {
    log->sequence = running.sequence;
    log->operation = running.operation;
    log->op = running.parts[0].op;
    log->algorithm = entry.running_algorithm;
    for (size_t i = 0; i < running.parts.size(); ++i) {
      log->posted_ns[i] = running.parts[i].posted_ns;
    }
    log->began_ns = running.began_ns;
    log->ended_ns = running.ended_ns;
    log->status = result.status;
    log->TakeStats(result.stats);
  }
}

void Engine::KeepFlightOfFailed(CommEntry& entry, const absl::Status& status) {
  // One that was cancelled: the record was kept when the communicator failed.
  if (entry.comm.state() != Communicator::State::kReady) return;
  const bool due =
      entry.flight_kept_ns == 0 || MonotonicNanos() - entry.flight_kept_ns >= kKeepEveryNs;
  if (due) KeepFlight(entry, status);
}

FlightDraft Engine::MakeDraft(const CommEntry& entry) const {
  FlightDraft draft = spccl::daemon::DraftFlight(entry, nodes_);
  draft.record.set_boot_id(absl::StrFormat("%016x", boot_id_));
  if (nodes_ != nullptr) draft.record.set_node(nodes_->self().name);
  draft.record.set_channels(scheduler_->channels());
  return draft;
}

FlightSpans Engine::ReadSpans() const {
  FlightSpans spans;
  if (spans_) spans[0] = spans_->Read();
  for (uint32_t i = 0; i < scheduler_->channels(); ++i) {
    if (const runtime::SpanRing* const ring = scheduler_->spans(i)) spans[i + 1] = ring->Read();
  }
  return spans;
}

void Engine::KeepFlight(CommEntry& entry, const absl::Status& reason) {
  if (!flight_files_) return;
  entry.flight_kept_ns = MonotonicNanos();
  auto draft = std::make_shared<FlightDraft>(MakeDraft(entry));
  draft->record.set_reason(std::string(reason.message()));
  const bool taken = keeper_->Post([this, draft] {
    AddSpans(ReadSpans(), draft.get());
    AddProcesses(&draft->record);
    const absl::StatusOr<std::string> path = flight_files_->Keep(draft->record);
    const std::string comm = absl::StrCat(draft->record.comm_id());
    if (path.ok()) {
      Log(LogLevel::kInfo, "flight", "record kept", {{"comm", comm}, {"file", *path}});
    } else {
      Log(LogLevel::kError, "flight", "record not kept",
          {{"comm", comm}, {"reason", std::string(path.status().message())}});
    }
  });
  if (!taken) {
    Log(LogLevel::kWarning, "flight", "record not kept: too many communicators fail at once",
        {{"comm", absl::StrCat(entry.comm.id())}});
  }
}

absl::StatusOr<v1::FlightRecord> Engine::FindKeptFlight(uint64_t comm_id) const {
  if (!flight_files_) {
    return absl::NotFoundError(
        absl::StrCat("there is no communicator ", comm_id, ", and no records are kept"));
  }
  return flight_files_->Find(absl::StrFormat("%016x", boot_id_), comm_id);
}

absl::StatusOr<FlightDraft> Engine::DraftFlight(uint64_t comm_id,
                                                std::shared_ptr<FlightAnswers> answers) {
  const CommEntry* const entry = registry_.FindComm(comm_id);
  if (entry == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no communicator ", comm_id));
  }
  FlightDraft draft = MakeDraft(*entry);
  std::erase_if(flight_asks_, [](const auto& ask) { return ask.second.expired(); });
  if (!entry->across() || entry->comm.state() == Communicator::State::kFailed) return draft;
  v1::PeerMessage message;
  v1::FlightAsk& ask = *message.mutable_flight_ask();
  ask.set_comm_key(BytesOf(entry->group->key));
  ask.set_id(next_flight_ask_++);
  flight_asks_[ask.id()] = answers;
  for (size_t i = 0; i < entry->group->nodes.size(); ++i) {
    const NodeId node = entry->group->nodes[i].id;
    if (node == 0) continue;
    draft.record.mutable_nodes(static_cast<int>(i))->set_asked(true);
    answers->Ask(node, static_cast<int>(i));
    nodes_->Send(node, message);
  }
  return draft;
}

void Engine::OnFlightAsk(NodeId node, const v1::FlightAsk& ask) {
  const auto key = ArrayOf<sizeof(CommKey)>(ask.comm_key(), "a communicator's key");
  if (!key.ok()) return;
  const CommEntry* const entry = registry_.FindComm(*key);
  auto message = std::make_shared<v1::PeerMessage>();
  v1::FlightAnswer& answer = *message->mutable_flight_answer();
  answer.set_comm_key(ask.comm_key());
  answer.set_id(ask.id());
  v1::FlightRecord& record = *answer.mutable_record();
  if (entry == nullptr || !entry->group->peers.contains(node)) {
    record.set_node(nodes_->self().name);
    record.set_state("gone");
    nodes_->Send(node, *message);
    return;
  }
  record = MakeDraft(*entry).record;
  const int surplus = record.ended_size() - kEndedForOthers;
  if (surplus > 0) record.mutable_ended()->DeleteSubrange(0, surplus);
  // Too much waits: no answer, and the asker says so.
  keeper_->Post([this, node, message] {
    AddProcesses(message->mutable_flight_answer()->mutable_record());
    nodes_->Send(node, *message);
  });
}

void Engine::OnFlightAnswer(NodeId node, const v1::FlightAnswer& answer) {
  const auto found = flight_asks_.find(answer.id());
  if (found == flight_asks_.end()) return;
  if (const std::shared_ptr<FlightAnswers> answers = found->second.lock()) {
    answers->Answer(node, answer.record());
  }
}

}  // namespace spccl::daemon
