#include "collective/transport/nccl/member.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace spccl::transport::nccl {
namespace {

// Launches take some ten microseconds where the connections are there: asking again at once costs
// less than a turn of the timer. What else is posted to the thread runs in between.
constexpr int64_t kAskAgainNs = 200'000;

}  // namespace

void Member::AssertThread() {
  if (!thread_.has_value()) thread_ = std::this_thread::get_id();
  SPCCL_CHECK(*thread_ == std::this_thread::get_id());
}

void Member::Enter(State state) {
  state_ = state;
  entered_ns_ = MonotonicNanos();
  switch (state) {
    case State::kInit:
    case State::kFinalizing:
      return Hurry(Haste::kFast);
    case State::kUp:
    case State::kLaunching:  // asks for itself first
      return Hurry(Haste::kSlow);
    case State::kNew:
    case State::kFailed:
    case State::kEnded:
      return Hurry(Haste::kNone);
  }
}

void Member::Hurry(Haste haste) {
  const Haste before = haste_.exchange(haste, std::memory_order_relaxed);
  if (haste == Haste::kFast && before != Haste::kFast) options_.on_haste();
}

std::string Member::PhaseOf(const GroupPart& part, const char* what) const {
  std::string phase = absl::StrCat("GPU rank ", options_.rank, ": ", what, " group ", part.number);
  const char* with = " with rank ";
  for (const GroupPart::Piece& piece : part.pieces) {
    absl::StrAppend(&phase, with, piece.peer);
    with = ", ";
  }
  return phase;
}

void Member::Fail(const absl::Status& status, bool another_gone) {
  if (state_ == State::kFailed || state_ == State::kEnded) return;
  Enter(State::kFailed);
  options_.on_failed(status, another_gone);
}

void Member::FailNccl(Result result, const std::string& phase) {
  Fail(options_.library->ToStatus(result, phase, comm_), result == kRemoteError);
}

std::optional<Result> Member::AskNccl() {
  Result result = kSuccess;
  const Result asked = options_.library->CommGetAsyncError(comm_, &result);
  if (asked != kSuccess) result = asked;
  if (result == kInProgress) return std::nullopt;
  return result;
}

void Member::Start(const UniqueId& id) {
  AssertThread();
  if (state_ != State::kNew) return;
  Enter(State::kInit);
  if (const absl::Status opened = options_.issuer->Open(); !opened.ok()) {
    return Fail(Annotate(opened, absl::StrCat("GPU rank ", options_.rank, ": beginning")));
  }
  Config config;
  config.blocking = 0;
  if (options_.max_ctas > 0) config.max_ctas = options_.max_ctas;
  const Result result = options_.library->CommInitRankConfig(
      &comm_, static_cast<int>(options_.ranks), id, static_cast<int>(options_.rank), &config);
  if (result != kSuccess && result != kInProgress) {
    // Without a communicator: of one that failed at once NCCL keeps nothing.
    comm_ = nullptr;
    FailNccl(result, absl::StrCat("GPU rank ", options_.rank, ": initialising NCCL"));
  }
}

void Member::Poll() {
  AssertThread();
  switch (state_) {
    case State::kInit: {
      const std::string phase = absl::StrCat("GPU rank ", options_.rank, ": initialising NCCL");
      const auto answer = AskNccl();
      if (!answer.has_value()) {
        if (MonotonicNanos() - entered_ns_ < options_.init_deadline_ns) return;
        return Fail(absl::DeadlineExceededError(
            absl::StrCat(phase, ": not all ", options_.ranks, " ranks came together in ",
                         options_.init_deadline_ns / 1'000'000, " ms")));
      }
      if (*answer != kSuccess) return FailNccl(*answer, phase);
      Enter(State::kUp);
      options_.on_up();
      return IssueNext();
    }
    case State::kLaunching:
      return AwaitLaunch();
    case State::kUp:
      return CheckRunning();
    case State::kFinalizing: {
      const auto answer = AskNccl();
      if (!answer.has_value() && MonotonicNanos() - entered_ns_ < options_.close_deadline_ns) {
        return;
      }
      return answer == kSuccess ? Destroy() : Abort();
    }
    case State::kNew:
    case State::kFailed:
    case State::kEnded:
      return;
  }
}

void Member::Issue(std::shared_ptr<GroupPart> part) {
  AssertThread();
  if (state_ == State::kFailed || state_ == State::kEnded) return;
  waiting_.push_back(std::move(part));
  IssueNext();
}

void Member::IssueNext() {
  while (state_ == State::kUp && !waiting_.empty()) {
    launching_ = std::move(waiting_.front());
    waiting_.pop_front();
    const Result result = Enqueue(*launching_);
    if (result == kInProgress) {
      Enter(State::kLaunching);
      return AwaitLaunch();
    }
    if (result != kSuccess) return FailNccl(result, PhaseOf(*launching_, "issuing"));
    OnLaunched();
  }
  if (state_ == State::kUp && finishing_ && running_.empty()) Finalize();
}

// The part as one group of NCCL's; none where there is nothing to move.
Result Member::Enqueue(const GroupPart& part) {
  const Library& nccl = *options_.library;
  bool moves = false;
  for (const GroupPart::Piece& piece : part.pieces) moves = moves || piece.bytes > 0;
  if (!moves) return kSuccess;
  const cuda::Stream stream = options_.issuer->stream();
  Result result = nccl.GroupStart();
  for (const GroupPart::Piece& piece : part.pieces) {
    if (piece.bytes == 0 || (result != kSuccess && result != kInProgress)) continue;
    const int peer = static_cast<int>(piece.peer);
    result = piece.sends ? nccl.Send(piece.data, piece.bytes, kUint8, peer, comm_, stream)
                         : nccl.Recv(piece.data, piece.bytes, kUint8, peer, comm_, stream);
  }
  const Result ended = nccl.GroupEnd();
  return result == kSuccess || result == kInProgress ? ended : result;
}

void Member::AwaitLaunch() {
  if (state_ != State::kLaunching) return;
  const std::string phase = PhaseOf(*launching_, "issuing");
  const auto answer = AskNccl();
  const int64_t waited_ns = MonotonicNanos() - entered_ns_;
  if (!answer.has_value()) {
    if (waited_ns >= options_.group_deadline_ns) {
      return Fail(absl::DeadlineExceededError(absl::StrCat(
          phase, ": NCCL was not through in ", options_.group_deadline_ns / 1'000'000, " ms")));
    }
    if (waited_ns < kAskAgainNs) {
      options_.issuer->Post([self = shared_from_this()] {
        self->AssertThread();
        self->AwaitLaunch();
      });
      return;
    }
    return Hurry(Haste::kFast);
  }
  if (*answer != kSuccess) return FailNccl(*answer, phase);
  Enter(State::kUp);
  OnLaunched();
  IssueNext();
}

// Only now is all of it on the stream.
void Member::OnLaunched() {
  std::shared_ptr<GroupPart> part = std::move(launching_);
  running_.push_back({part, MonotonicNanos()});
  options_.issuer->WhenDone([self = shared_from_this(), part = std::move(part)](
                                const absl::Status& status) { self->OnThrough(part, status); });
}

void Member::OnThrough(const std::shared_ptr<GroupPart>& part, const absl::Status& status) {
  AssertThread();
  if (state_ == State::kFailed || state_ == State::kEnded) return;  // what came may be anything
  if (!status.ok()) return Fail(Annotate(status, PhaseOf(*part, "running")));
  SPCCL_CHECK(running_.front().part == part);
  running_.pop_front();
  options_.on_done(part);
  IssueNext();
}

void Member::CheckRunning() {
  const auto answer = AskNccl();
  if (answer.has_value() && *answer != kSuccess) {
    return FailNccl(*answer, absl::StrCat("GPU rank ", options_.rank, ": moving frames"));
  }
  if (running_.empty()) return;
  if (MonotonicNanos() - running_.front().since_ns < options_.group_deadline_ns) return;
  Fail(absl::DeadlineExceededError(absl::StrCat(PhaseOf(*running_.front().part, "running"),
                                                ": not through in ",
                                                options_.group_deadline_ns / 1'000'000, " ms")));
}

void Member::Finish() {
  AssertThread();
  if (state_ == State::kNew || state_ == State::kInit || state_ == State::kFailed) return Abort();
  finishing_ = true;
  IssueNext();
}

void Member::Finalize() {
  const Result result = options_.library->CommFinalize(comm_);
  if (result != kSuccess && result != kInProgress) return Abort();
  Enter(State::kFinalizing);
  Poll();
}

void Member::Destroy() {
  const Result result = options_.library->CommDestroy(std::exchange(comm_, nullptr));
  if (result != kSuccess && result != kInProgress) {
    Log(LogLevel::kWarning, "nccl",
        options_.library->ToStatus(result, "ncclCommDestroy").ToString());
  }
  Enter(State::kEnded);
  options_.on_ended();
}

void Member::Abort() {
  AssertThread();
  if (state_ == State::kEnded) return;
  waiting_.clear();
  if (comm_ != nullptr) {
    const Result result = options_.library->CommAbort(std::exchange(comm_, nullptr));
    if (result != kSuccess && result != kInProgress) {
      Log(LogLevel::kWarning, "nccl",
          options_.library->ToStatus(result, "ncclCommAbort").ToString());
    }
  }
  // What was launched is kept by the callbacks that wait for the stream; what was being launched
  // may still be under way there.
  if (launching_ != nullptr) {
    options_.issuer->WhenDone([part = std::move(launching_)](const absl::Status&) {});
  }
  running_.clear();
  Enter(State::kEnded);
  options_.on_ended();
}

}  // namespace spccl::transport::nccl
