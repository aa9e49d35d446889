// One rank of a world: its NCCL communicator, from init to its end.
//
// NCCL wants one thread at a time at a communicator, and every rank of a GPU to be issued from one
// thread: all methods but poll() are called on the issuing thread, which is asserted. The
// communicator does not block: a call that is still under way (ncclInProgress) is asked for again,
// at once for a short while and then from Poll(), and what comes next waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "collective/transport/nccl/environment.h"
#include "collective/transport/nccl/library.h"

namespace spccl::transport::nccl {

// The part of one group that is one rank's.
struct GroupPart {
  struct Piece {
    bool sends = false;  // or receives
    uint32_t peer = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;  // 0: nothing for NCCL to do
  };
  uint64_t number = 0;
  std::vector<Piece> pieces;
  std::shared_ptr<void> keeps;  // owns the memory; let go when the stream is through with it
};

struct MemberOptions {
  std::shared_ptr<const Library> library;
  Issuer* issuer = nullptr;
  uint32_t rank = 0, ranks = 0;
  int max_ctas = 0;  // 0: NCCL's default
  int64_t init_deadline_ns = 0, group_deadline_ns = 0, close_deadline_ns = 0;
  // Called on the issuing thread, and may call back into the member.
  std::function<void()> on_up = {};
  // haste() has become kFast.
  std::function<void()> on_haste = {};
  // Once, with what is wrong and the phase that it was in. The member then waits for Abort.
  // `another_gone`: NCCL has lost another rank's process, it does not say which; else the failure
  // is this rank's.
  std::function<void(const absl::Status&, bool another_gone)> on_failed = {};
  std::function<void(const std::shared_ptr<GroupPart>&)> on_done = {};  // in the order of Issue
  std::function<void()> on_ended = {};  // once: there is no communicator any more
};

class Member : public std::enable_shared_from_this<Member> {
 public:
  explicit Member(MemberOptions options) : options_(std::move(options)) {}

  void Start(const UniqueId& id);
  // In the order of the groups' numbers.
  void Issue(std::shared_ptr<GroupPart> part);
  // Looks whether NCCL is through, or has failed, or takes too long.
  void Poll();
  // Ends the communicator when all that was issued is through; by force after a while.
  void Finish();
  // Ends the communicator now, and what it does on the GPU. Idempotent; on_failed is not called any
  // more.
  void Abort();

  enum class Haste { kNone, kSlow, kFast };
  // How soon Poll should be called. On any thread; a hint.
  Haste haste() const { return haste_.load(std::memory_order_relaxed); }

 private:
  enum class State { kNew, kInit, kUp, kLaunching, kFinalizing, kFailed, kEnded };

  void AssertThread();
  void Enter(State state);
  void Hurry(Haste haste);
  void Fail(const absl::Status& status, bool another_gone = false);
  void FailNccl(Result result, const std::string& phase);
  void IssueNext();
  Result Enqueue(const GroupPart& part);
  void AwaitLaunch();
  void OnLaunched();
  void OnThrough(const std::shared_ptr<GroupPart>& part, const absl::Status& status);
  void CheckRunning();
  void Finalize();
  void Destroy();
  // kSuccess, not through yet (nullopt), or an error.
  std::optional<Result> AskNccl();
  std::string PhaseOf(const GroupPart& part, const char* what) const;

  const MemberOptions options_;
  std::optional<std::thread::id> thread_;
  Comm comm_ = nullptr;
  State state_ = State::kNew;
  int64_t entered_ns_ = 0;
  bool finishing_ = false;
  std::deque<std::shared_ptr<GroupPart>> waiting_;
  std::shared_ptr<GroupPart> launching_;
  struct Running {
    std::shared_ptr<GroupPart> part;
    int64_t since_ns = 0;
  };
  std::deque<Running> running_;
  std::atomic<Haste> haste_{Haste::kNone};
};

}  // namespace spccl::transport::nccl
