#include "daemon/communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

std::string Text(std::string_view text) {
  return std::string(text);
}

// Two ranks' wishes for one setting: those that say nothing agree with all.
template <typename T>
bool Agree(const std::optional<T>& a, const std::optional<T>& b) {
  return !a || !b || *a == *b;
}

template <typename T>
std::string WishText(const char* variable, uint32_t rank, const std::optional<T>& mine,
                     const std::optional<T>& others) {
  if (Agree(mine, others)) return "";
  return absl::StrCat("; ", variable, " is ", Text(policy::NameOf(*mine)), " on rank ", rank,
                      " and ", Text(policy::NameOf(*others)), " on a rank that joined before it");
}

// "pid 123", "pid 123 on node-b"
std::string ProcessOf(const Communicator::Member& member) {
  return member.local() ? absl::StrCat("pid ", member.pid)
                        : absl::StrCat("pid ", member.pid, " on ", member.node);
}

}  // namespace

bool RankPart::Complete(const absl::Status& status) const {
  // Where the end of the work on GPUs has not, so that the rank's stream goes on. Before the
  // completion, with which the words get their next user; but an error must be there when whoever
  // waited for the stream asks how it went, and the client gives the words away only after both.
  if (order != nullptr && status.ok()) order->WriteDone();
  const bool ok = port->Complete(ticket, handle, status);
  if (order != nullptr) order->WriteDone();
  if (relay != nullptr) relay->Ring();
  return ok;
}

std::string Describe(const OpDesc& op) {
  std::string text =
      absl::StrCat(Text(NameOf(op.kind)), " count=", op.count, " ", Text(NameOf(op.dtype)));
  if (Reduces(op.kind)) absl::StrAppend(&text, " ", Text(NameOf(op.redop)));
  if (HasRoot(op.kind)) absl::StrAppend(&text, " root=", op.root);
  return text;
}

bool Communicator::abandoned() const {
  return left_count_ == local_ranks_.size() && !running_ && !forming();
}

std::string Communicator::NameOfRank(uint32_t rank) const {
  const Member& member = seats_[rank].member;
  if (!seats_[rank].joined) return absl::StrCat("rank ", rank);
  if (member.local()) return absl::StrCat("rank ", rank, " (pid ", member.pid, ")");
  return absl::StrCat("rank ", rank, " (pid ", member.pid, " on ", member.node, ")");
}

std::string Communicator::NamesOf(const std::vector<uint32_t>& ranks) const {
  constexpr size_t kNamed = 8;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", NameOfRank(ranks[i]));
  }
  if (ranks.size() > kNamed) absl::StrAppend(&text, " and ", ranks.size() - kNamed, " more");
  return text;
}

absl::Status Communicator::CheckWishes(uint32_t rank, const Member& member) const {
  const policy::Overrides& wish = member.wishes;
  if (Agree(wish.algorithm, wishes_.algorithm) && Agree(wish.codec, wishes_.codec)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("ranks disagree on their communicator's settings",
                   WishText("SPCCL_ALGO", rank, wish.algorithm, wishes_.algorithm),
                   WishText("SPCCL_CODEC", rank, wish.codec, wishes_.codec)));
}

absl::Status Communicator::Join(uint32_t rank, uint32_t ranks, const Member& member,
                                int64_t deadline_ns) {
  if (ranks != seats_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("ranks disagree on the size of the communicator: rank ", rank, " (",
                     ProcessOf(member), ") says ", ranks, ", the ranks before it ", seats_.size()));
  }
  SPCCL_CHECK(rank < ranks);
  if (seats_[rank].joined) {
    return absl::FailedPreconditionError(absl::StrCat("two processes are rank ", rank, ": ",
                                                      ProcessOf(seats_[rank].member), " and ",
                                                      ProcessOf(member)));
  }
  if (state_ != State::kForming) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank, " (", ProcessOf(member), ") joins a communicator that is formed already"));
  }
  SPCCL_RETURN_IF_ERROR(CheckWishes(rank, member));
  if (member.wishes.algorithm) wishes_.algorithm = member.wishes.algorithm;
  if (member.wishes.codec) wishes_.codec = member.wishes.codec;
  seats_[rank].joined = true;
  seats_[rank].member = member;
  if (forming_deadline_ns_ == 0 || deadline_ns < forming_deadline_ns_) {
    forming_deadline_ns_ = deadline_ns;
  }
  if (member.local()) {
    local_ranks_.insert(std::lower_bound(local_ranks_.begin(), local_ranks_.end(), rank), rank);
  }
  // Of another daemon's communicator only that one knows when all have joined, even if all are
  // here.
  if (++joined_count_ == seats_.size() && root_.empty()) {
    state_ = local_ranks_.size() == seats_.size() ? State::kReady : State::kConnecting;
  }
  return absl::OkStatus();
}

absl::Status Communicator::Meet(const std::vector<Member>& members) {
  SPCCL_CHECK(members.size() == seats_.size());
  if (state_ != State::kForming) {
    return absl::FailedPreconditionError("the communicator is formed already");
  }
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    Seat& seat = seats_[rank];
    if (seat.joined != members[rank].node.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the root says that rank ", rank, " is ",
                       seat.joined ? "elsewhere, and it is here" : "here, and it is not"));
    }
    if (!seat.joined) seat.member = members[rank];
    seat.joined = true;
  }
  joined_count_ = ranks();
  state_ = State::kConnecting;
  return absl::OkStatus();
}

void Communicator::Open() {
  SPCCL_CHECK(state_ == State::kConnecting);
  state_ = State::kReady;
}

std::vector<Outcome> Communicator::Poison(Operation& operation, uint32_t rank, RankPart part,
                                          const absl::Status& error) {
  const absl::Status for_others =
      absl::IsResourceExhausted(error)
          ? error
          : absl::AbortedError(
                absl::StrCat(NameOfRank(rank),
                             " called the operation with a wrong argument: ", error.message()));
  operation.poison = for_others;
  std::vector<Outcome> outcomes;
  outcomes.push_back({std::move(part), error});
  for (auto& other : operation.parts) {
    if (other) outcomes.push_back({std::move(*other), for_others});
    other.reset();
  }
  return outcomes;
}

absl::StatusOr<std::vector<Outcome>> Communicator::Submit(uint32_t rank, uint64_t sequence,
                                                          RankPart part, absl::Status error,
                                                          int64_t now_ns) {
  std::vector<Outcome> outcomes;
  if (state_ != State::kReady) {
    outcomes.push_back({std::move(part), state_ == State::kFailed
                                             ? error_
                                             : absl::FailedPreconditionError(
                                                   "not all ranks have joined the communicator")});
    return outcomes;
  }
  switch (seats_[rank].window.Accept(sequence)) {
    case SequenceWindow::Verdict::kNew:
      break;
    case SequenceWindow::Verdict::kReplayed:
      return absl::InvalidArgumentError(absl::StrCat("sequence ", sequence, " came twice"));
    case SequenceWindow::Verdict::kTooFar:
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", sequence, " is too far ahead of ", seats_[rank].window.base()));
  }
  Operation& operation = pending_[sequence];
  if (operation.arrivals == 0) {
    operation.parts.resize(seats_.size());
    operation.arrived.resize(seats_.size());
    operation.first_arrival_ns = now_ns;
  }
  part.posted_ns = now_ns;
  operation.arrived[rank] = true;
  operation.last_arrival_ns = now_ns;
  ++operation.arrivals;
  if (!operation.poison.ok()) {
    outcomes.push_back({std::move(part), error.ok() ? operation.poison : error});
  } else if (!error.ok()) {
    outcomes = Poison(operation, rank, std::move(part), error);
  } else {
    operation.parts[rank] = std::move(part);
  }
  return outcomes;
}

absl::Status Communicator::FindMismatch(uint64_t sequence,
                                        const std::vector<RankPart>& parts) const {
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].op == parts[0].op) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "ranks disagree on operation ", sequence, ": rank ", local_ranks_[0], " called ",
        Describe(parts[0].op), ", rank ", local_ranks_[i], " ", Describe(parts[i].op)));
  }
  return absl::OkStatus();
}

std::optional<ReadyOperation> Communicator::TakeReady(int64_t now_ns) {
  while (state_ == State::kReady && !running_) {
    const auto head = pending_.find(head_);
    if (head == pending_.end() || head->second.arrivals < local_ranks_.size()) return std::nullopt;
    ReadyOperation ready;
    ready.sequence = head_++;
    ready.first_arrival_ns = head->second.first_arrival_ns;
    ready.last_arrival_ns = head->second.last_arrival_ns;
    head_since_ns_ = now_ns;
    const bool poisoned = !head->second.poison.ok();
    for (auto& part : head->second.parts) {
      if (part) ready.parts.push_back(std::move(*part));
    }
    pending_.erase(head);
    if (poisoned) continue;  // all its parts were completed as they came
    ready.mismatch = FindMismatch(ready.sequence, ready.parts);
    running_ = true;
    running_since_ns_ = now_ns;
    return ready;
  }
  return std::nullopt;
}

void Communicator::FinishRunning(int64_t now_ns) {
  SPCCL_CHECK(running_);
  running_ = false;
  head_since_ns_ = now_ns;
}

void Communicator::Leave(uint32_t rank, std::string how) {
  Seat& seat = seats_[rank];
  if (!seat.joined || seat.left) return;
  SPCCL_CHECK(seat.member.local());
  seat.left = anyone_left_ = true;
  seat.how = std::move(how);
  ++left_count_;
}

void Communicator::LeaveRemote(uint32_t rank, uint64_t sequence, std::string how) {
  Seat& seat = seats_[rank];
  SPCCL_CHECK(!seat.member.local());
  if (seat.left) return;
  seat.left = anyone_left_ = true;
  seat.how = std::move(how);
  seat.left_at = sequence;
}

std::vector<uint32_t> Communicator::NotJoined() const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (!seats_[rank].joined) missing.push_back(rank);
  }
  return missing;
}

std::vector<uint32_t> Communicator::MissingAtHead() const {
  const auto head = pending_.find(head_);
  std::vector<uint32_t> missing;
  for (const uint32_t rank : local_ranks_) {
    if (head == pending_.end() || !head->second.arrived[rank]) missing.push_back(rank);
  }
  return missing;
}

std::optional<CommFailure> Communicator::CheckForming(int64_t now_ns) const {
  if (forming_deadline_ns_ == 0 || now_ns < forming_deadline_ns_) return std::nullopt;
  if (state_ == State::kConnecting) {
    return CommFailure{.status = absl::DeadlineExceededError(
                           absl::StrCat("connecting the nodes of the communicator: waited for ",
                                        waiting_for_, " until the deadline"))};
  }
  if (!root_.empty()) {
    return CommFailure{.status = absl::DeadlineExceededError(
                           absl::StrCat("forming the communicator: the daemon at ", root_,
                                        " did not answer before the deadline"))};
  }
  const std::vector<uint32_t> missing = NotJoined();
  return CommFailure{.status = absl::DeadlineExceededError(
                         absl::StrCat("forming the communicator: ", NamesOf(missing), " of ",
                                      seats_.size(), " did not join before the deadline")),
                     .culprit_rank = static_cast<int>(missing.front())};
}

bool Communicator::Misses(const Seat& seat, uint32_t rank, uint64_t sequence,
                          const Operation* operation) const {
  if (!seat.left) return false;
  if (!seat.member.local()) return sequence >= seat.left_at;
  return operation != nullptr && !operation->arrived[rank];
}

std::optional<CommFailure> Communicator::CheckLeavers() const {
  if (!anyone_left_) return std::nullopt;
  const auto look = [this](uint64_t sequence,
                           const Operation* operation) -> std::optional<CommFailure> {
    for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
      if (!Misses(seats_[rank], rank, sequence, operation)) continue;
      return CommFailure{
          .status = absl::AbortedError(absl::StrCat(NameOfRank(rank), " ", seats_[rank].how,
                                                    " before operation ", sequence)),
          .culprit_rank = static_cast<int>(rank)};
    }
    return std::nullopt;
  };
  if (running_) {
    if (auto failure = look(head_ - 1, nullptr)) return failure;
  }
  for (const auto& [sequence, operation] : pending_) {
    if (auto failure = look(sequence, &operation)) return failure;
  }
  return std::nullopt;
}

std::optional<CommFailure> Communicator::Check(int64_t now_ns, int64_t op_timeout_ns) const {
  if (forming()) return CheckForming(now_ns);
  if (state_ == State::kFailed) return std::nullopt;
  if (auto failure = CheckLeavers()) return failure;
  const auto seconds = [](int64_t ns) { return absl::StrCat(ns / 1'000'000, " ms"); };
  if (running_) {
    if (now_ns - running_since_ns_ < op_timeout_ns) return std::nullopt;
    return CommFailure{
        .status = absl::DeadlineExceededError(absl::StrCat(
            "running operation ", head_ - 1, " took more than ", seconds(op_timeout_ns)))};
  }
  if (pending_.empty()) return std::nullopt;
  // Nobody waits for the head before it is the head and somebody has come.
  const int64_t since = std::max(head_since_ns_, pending_.begin()->second.first_arrival_ns);
  if (now_ns - since < op_timeout_ns) return std::nullopt;
  const std::vector<uint32_t> missing = MissingAtHead();
  if (missing.empty()) return std::nullopt;  // TakeReady() is due, and waits for nobody
  return CommFailure{.status = absl::DeadlineExceededError(
                         absl::StrCat("waiting for ", NamesOf(missing), ": operation ", head_,
                                      " was not called within ", seconds(op_timeout_ns))),
                     .culprit_rank = static_cast<int>(missing.front())};
}

std::vector<Outcome> Communicator::Fail(const CommFailure& failure) {
  std::vector<Outcome> outcomes;
  if (state_ == State::kFailed) return outcomes;
  state_ = State::kFailed;
  error_ = failure.status;
  for (auto& [sequence, operation] : pending_) {
    for (auto& part : operation.parts) {
      if (part) outcomes.push_back({std::move(*part), failure.status});
    }
  }
  pending_.clear();
  return outcomes;
}

std::string Communicator::FormingFor() const {
  if (state_ == State::kConnecting) return waiting_for_;
  return root_.empty() ? NamesOf(NotJoined()) : absl::StrCat("the daemon at ", root_);
}

std::vector<Communicator::Waiting> Communicator::WaitingOps(size_t most) const {
  std::vector<Waiting> waiting;
  for (const auto& [sequence, operation] : pending_) {
    if (waiting.size() == most) break;
    Waiting& one = waiting.emplace_back(Waiting{.sequence = sequence, .posted = {}});
    for (uint32_t rank = 0; rank < operation.parts.size(); ++rank) {
      const std::optional<RankPart>& part = operation.parts[rank];
      if (!part) continue;
      if (one.op == nullptr) one.op = &part->op;
      one.posted.emplace_back(rank, part->posted_ns);
    }
  }
  return waiting;
}

std::string Communicator::PhaseOf(uint32_t rank) const {
  if (state_ == State::kFailed) return "failed";
  if (state_ == State::kForming) return absl::StrCat("forming: waiting for ", FormingFor());
  if (state_ == State::kConnecting) return absl::StrCat("connecting: waiting for ", FormingFor());
  if (!seats_[rank].member.local()) return absl::StrCat("on ", seats_[rank].member.node);
  if (running_) return "running";
  if (pending_.empty()) return seats_[rank].left ? "left" : "idle";
  const auto head = pending_.find(head_);
  if (head == pending_.end() || !head->second.arrived[rank]) {
    return seats_[rank].left ? "left" : "idle";
  }
  const std::vector<uint32_t> missing = MissingAtHead();
  return missing.empty() ? "queued" : absl::StrCat("waiting for ", NamesOf(missing));
}

}  // namespace spccl::daemon
