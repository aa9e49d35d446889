#include "bench/support/rank_team.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"

namespace spccl::bench {
namespace {

constexpr size_t kRowLength = 4096;  // doubles a rank hands to a fold at a time
constexpr int64_t kBarrierSpinNs = 10'000'000;
constexpr int64_t kBarrierSleepNs = 100'000'000;  // a break may come just before a sleep
constexpr size_t kMessageBytes = 512;
constexpr int64_t kBarrierTimeoutNs = 300'000'000'000;
constexpr int64_t kGraceNs = 2'000'000'000;
// How a rank's process ends: with an error of its own, or because another's broke the barrier.
constexpr int kFailed = 1, kLeftBehind = 2;
constexpr char kBarrierBroken[] = "another rank has failed, or did not come to the barrier in time";

double Larger(double a, double b) {
  return std::max(a, b);
}
double Sum(double a, double b) {
  return a + b;
}

// Where the parts of a team's shared memory lie.
struct TeamMemory {
  SharedArena arena;
  SharedBarrier* barrier;
  std::span<std::byte> notice;
  std::span<double> numbers;
  std::span<char> messages;  // kMessageBytes a rank, NUL-terminated

  static absl::StatusOr<TeamMemory> Create(int ranks) {
    const size_t numbers_bytes = ranks * kRowLength * sizeof(double);
    constexpr size_t kHead = 64 + RankTeam::kNoticeBytes;
    SPCCL_ASSIGN_OR_RETURN(SharedArena arena,
                           SharedArena::Create(kHead + numbers_bytes + ranks * kMessageBytes));
    std::byte* base = arena.data();
    TeamMemory memory;
    memory.barrier = new (base) SharedBarrier;
    memory.notice = {base + 64, RankTeam::kNoticeBytes};
    memory.numbers = {reinterpret_cast<double*>(base + kHead), ranks * kRowLength};
    memory.messages = {reinterpret_cast<char*>(base + kHead + numbers_bytes),
                       ranks * kMessageBytes};
    memory.arena = std::move(arena);
    return memory;
  }
};
static_assert(sizeof(SharedBarrier) <= 64);

sigset_t SignalsOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  return set;
}

sigset_t AwaitedSignals() {
  return SignalsOf({SIGCHLD, SIGINT, SIGTERM, SIGHUP});
}

// The next signal that a team's parent waits for, or nothing when none comes within `timeout_ns`.
std::optional<int> NextSignal(int64_t timeout_ns) {
  const sigset_t set = AwaitedSignals();
  const timespec timeout{.tv_sec = timeout_ns / 1'000'000'000,
                         .tv_nsec = timeout_ns % 1'000'000'000};
  const int signal = sigtimedwait(&set, nullptr, &timeout);
  return signal > 0 ? std::optional<int>(signal) : std::nullopt;
}

[[noreturn]] void RunRank(RankTeam team, char* message, SharedBarrier* barrier,
                          const std::function<absl::Status(RankTeam&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const sigset_t awaited = AwaitedSignals();
  sigprocmask(SIG_UNBLOCK, &awaited, nullptr);
  signal(SIGINT, SIG_IGN);  // the terminal sends it to all; the parent decides
  const absl::Status status = body(team);
  if (!status.ok()) {
    std::snprintf(message, kMessageBytes, "%s", std::string(status.message()).c_str());
    barrier->Break();
  }
  std::fflush(stdout);
  std::fflush(stderr);
  if (status.ok()) _exit(0);
  _exit(absl::StrContains(status.message(), kBarrierBroken) ? kLeftBehind : kFailed);
}

// The forked ranks, and what became of them.
class Children {
 public:
  explicit Children(std::span<char> messages) : messages_(messages) {}
  void Add(pid_t pid) { pids_.push_back(pid); }
  bool all_gone() const {
    return std::all_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid == 0; });
  }
  const absl::Status& status() const { return status_; }
  // A cause takes the place of what only followed from it, whichever is seen first.
  void Fail(absl::Status status, bool is_cause = true) {
    if (status_.ok() || (is_cause && !has_cause_)) status_ = std::move(status);
    has_cause_ = has_cause_ || is_cause;
  }

  void Kill(int signal) const {
    for (pid_t pid : pids_) {
      if (pid != 0) kill(pid, signal);
    }
  }

  void Reap() {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      int how = 0;
      if (pids_[rank] == 0 || waitpid(pids_[rank], &how, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = 0;
      if (WIFSIGNALED(how)) {
        Fail(
            absl::AbortedError(absl::StrCat("rank ", rank, " died of ", strsignal(WTERMSIG(how)))));
      } else if (WEXITSTATUS(how) != 0) {
        Fail(
            absl::UnknownError(absl::StrCat("rank ", rank, ": ", &messages_[rank * kMessageBytes])),
            WEXITSTATUS(how) != kLeftBehind);
      }
    }
  }

 private:
  std::vector<pid_t> pids_;  // 0: reaped
  std::span<char> messages_;
  absl::Status status_;
  bool has_cause_ = false;
};

absl::Status WaitForAll(Children& children, SharedBarrier* barrier) {
  int64_t kill_at = 0;  // 0: nobody has failed
  while (true) {
    children.Reap();
    if (children.all_gone()) return children.status();
    if (!children.status().ok() && kill_at == 0) {
      barrier->Break();
      kill_at = MonotonicNanos() + kGraceNs;
    }
    if (kill_at != 0 && MonotonicNanos() >= kill_at) children.Kill(SIGKILL);
    const std::optional<int> signal = NextSignal(kill_at == 0 ? 1'000'000'000 : 20'000'000);
    if (signal.has_value() && *signal != SIGCHLD) {
      children.Fail(absl::CancelledError(absl::StrCat("ended by ", strsignal(*signal))));
      children.Kill(SIGKILL);
    }
  }
}

}  // namespace

SharedArena::SharedArena(SharedArena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

SharedArena& SharedArena::operator=(SharedArena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

SharedArena::~SharedArena() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

absl::StatusOr<SharedArena> SharedArena::Create(size_t size_bytes) {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("map ", size_bytes, " bytes"));
  return SharedArena(static_cast<std::byte*>(data), size_bytes);
}

bool SharedBarrier::Wait(uint32_t parties, int64_t timeout_ns) {
  const int64_t deadline = MonotonicNanos() + timeout_ns;
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  // acq_rel: what every rank wrote before its arrival is seen by the last one, and its release of
  // the new generation hands that on to all.
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parties) {
    arrived_.store(0, std::memory_order_relaxed);  // ordered before the release below
    generation_.store(generation + 1, std::memory_order_release);
    FutexWakeAll(&generation_);
    return broken_.load(std::memory_order_relaxed) == 0;
  }
  // acquire: pairs with the last one's release.
  const auto passed = [&] {
    return generation_.load(std::memory_order_acquire) != generation ||
           broken_.load(std::memory_order_relaxed) != 0;  // a flag; orders nothing
  };
  while (!spin_.Until(passed, kBarrierSpinNs) && !passed()) {
    if (MonotonicNanos() > deadline) Break();
    FutexWait(&generation_, generation, kBarrierSleepNs);
  }
  return broken_.load(std::memory_order_relaxed) == 0;
}

void SharedBarrier::Break() {
  broken_.store(1, std::memory_order_relaxed);  // a flag; orders nothing
  FutexWakeAll(&generation_);
}

absl::Status RankTeam::Barrier() {
  if (barrier_->Wait(ranks_, kBarrierTimeoutNs)) return absl::OkStatus();
  return absl::AbortedError(kBarrierBroken);
}

absl::Status RankTeam::Fold(std::span<double> values, double (*fold)(double, double)) {
  for (size_t begin = 0; begin < values.size(); begin += kRowLength) {
    const std::span<double> part =
        values.subspan(begin, std::min(kRowLength, values.size() - begin));
    std::copy(part.begin(), part.end(), numbers_.begin() + rank_ * kRowLength);
    SPCCL_RETURN_IF_ERROR(Barrier());
    std::copy_n(numbers_.begin(), part.size(), part.begin());
    for (int rank = 1; rank < ranks_; ++rank) {
      for (size_t i = 0; i < part.size(); ++i) {
        part[i] = fold(part[i], numbers_[rank * kRowLength + i]);
      }
    }
    SPCCL_RETURN_IF_ERROR(Barrier());  // before the rows are written again
  }
  return absl::OkStatus();
}

absl::Status RankTeam::MaxOverRanks(std::span<double> values) {
  return Fold(values, Larger);
}

absl::Status RankTeam::SumOverRanks(std::span<double> values) {
  return Fold(values, Sum);
}

absl::Status RankTeam::FromRankZero(void* value, size_t bytes) {
  SPCCL_CHECK(bytes <= kNoticeBytes);
  if (rank_ == 0) std::memcpy(notice_.data(), value, bytes);
  SPCCL_RETURN_IF_ERROR(Barrier());
  std::memcpy(value, notice_.data(), bytes);
  return Barrier();
}

void HoldSignals() {
  const sigset_t held = SignalsOf({SIGINT, SIGTERM, SIGHUP});
  sigprocmask(SIG_BLOCK, &held, nullptr);
}

absl::Status RunTeam(int ranks, const std::function<absl::Status(RankTeam&)>& body) {
  SPCCL_ASSIGN_OR_RETURN(const TeamMemory memory, TeamMemory::Create(ranks));
  std::fflush(stdout);  // or every rank would write what is buffered once more
  std::fflush(stderr);
  const sigset_t awaited = AwaitedSignals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &awaited, &before);
  Children children(memory.messages);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      RunRank(RankTeam(rank, ranks, memory.barrier, memory.numbers, memory.notice),
              &memory.messages[rank * kMessageBytes], memory.barrier, body);
    }
    if (pid < 0) {
      children.Fail(ErrnoStatus(errno, "fork"));
      children.Kill(SIGKILL);
      break;
    }
    children.Add(pid);
  }
  absl::Status status = WaitForAll(children, memory.barrier);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace spccl::bench
