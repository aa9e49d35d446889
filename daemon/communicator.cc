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

}  // namespace

bool RankPart::Complete(const absl::Status& status) const {
  const bool ok = port->Complete(ticket, handle, status);
  if (relay != nullptr) relay->Ring();
  return ok;
}

std::string Describe(const OpDesc& op) {
  std::string text =
      absl::StrCat(Text(NameOf(op.kind)), " count=", op.count, " ", Text(NameOf(op.dtype)));
  if (Reduces(op.kind)) absl::StrAppend(&text, " ", Text(NameOf(op.redop)));
  if (op.kind == OpKind::kBroadcast) absl::StrAppend(&text, " root=", op.root);
  return text;
}

bool Communicator::abandoned() const {
  return left_count_ == joined_count_ && !running_ && state_ != State::kForming;
}

std::string Communicator::NameOfRank(uint32_t rank) const {
  if (!seats_[rank].joined) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (pid ", seats_[rank].member.pid, ")");
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
        absl::StrCat("ranks disagree on the size of the communicator: rank ", rank, " (pid ",
                     member.pid, ") says ", ranks, ", the ranks before it ", seats_.size()));
  }
  SPCCL_CHECK(rank < ranks);
  if (seats_[rank].joined) {
    return absl::FailedPreconditionError(absl::StrCat("two processes are rank ", rank, ": pid ",
                                                      seats_[rank].member.pid, " and pid ",
                                                      member.pid));
  }
  SPCCL_RETURN_IF_ERROR(CheckWishes(rank, member));
  if (member.wishes.algorithm) wishes_.algorithm = member.wishes.algorithm;
  if (member.wishes.codec) wishes_.codec = member.wishes.codec;
  seats_[rank].joined = true;
  seats_[rank].member = member;
  if (forming_deadline_ns_ == 0 || deadline_ns < forming_deadline_ns_) {
    forming_deadline_ns_ = deadline_ns;
  }
  if (++joined_count_ == seats_.size()) state_ = State::kReady;
  return absl::OkStatus();
}

std::vector<Outcome> Communicator::Poison(Operation& operation, uint32_t rank, RankPart part,
                                          const absl::Status& error) {
  const absl::Status for_others = absl::AbortedError(absl::StrCat(
      NameOfRank(rank), " called the operation with a wrong argument: ", error.message()));
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
  operation.arrived[rank] = true;
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

absl::Status Communicator::FindMismatch(uint64_t sequence, const std::vector<RankPart>& parts) {
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    if (parts[rank].op == parts[0].op) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("ranks disagree on operation ", sequence, ": rank 0 called ",
                     Describe(parts[0].op), ", rank ", rank, " ", Describe(parts[rank].op)));
  }
  return absl::OkStatus();
}

std::optional<ReadyOperation> Communicator::TakeReady(int64_t now_ns) {
  while (state_ == State::kReady && !running_) {
    const auto head = pending_.find(head_);
    if (head == pending_.end() || head->second.arrivals < seats_.size()) return std::nullopt;
    ReadyOperation ready;
    ready.sequence = head_++;
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

void Communicator::Leave(uint32_t rank) {
  Seat& seat = seats_[rank];
  if (!seat.joined || seat.left) return;
  seat.left = true;
  ++left_count_;
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
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (head == pending_.end() || !head->second.arrived[rank]) missing.push_back(rank);
  }
  return missing;
}

std::optional<CommFailure> Communicator::CheckForming(int64_t now_ns) const {
  if (forming_deadline_ns_ == 0 || now_ns < forming_deadline_ns_) return std::nullopt;
  const std::vector<uint32_t> missing = NotJoined();
  return CommFailure{.status = absl::DeadlineExceededError(
                         absl::StrCat("forming the communicator: ", NamesOf(missing), " of ",
                                      seats_.size(), " did not join before the deadline")),
                     .culprit_rank = static_cast<int>(missing.front())};
}

std::optional<CommFailure> Communicator::CheckLeavers() const {
  if (left_count_ == 0) return std::nullopt;
  for (const auto& [sequence, operation] : pending_) {
    for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
      if (!seats_[rank].left || operation.arrived[rank]) continue;
      return CommFailure{
          .status = absl::AbortedError(absl::StrCat(
              NameOfRank(rank), " has left the communicator before operation ", sequence)),
          .culprit_rank = static_cast<int>(rank)};
    }
  }
  return std::nullopt;
}

std::optional<CommFailure> Communicator::Check(int64_t now_ns, int64_t op_timeout_ns) const {
  if (state_ == State::kForming) return CheckForming(now_ns);
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

std::string Communicator::PhaseOf(uint32_t rank) const {
  if (state_ == State::kFailed) return "failed";
  if (state_ == State::kForming) {
    return absl::StrCat("forming: waiting for ", NamesOf(NotJoined()));
  }
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
