// What is behind fake_nccl.cc's functions: communicators, what they have issued, and the matching
// of sends and receives.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_nccl/fake_nccl.h"

namespace spccl {

namespace nccl = transport::nccl;

struct FakeComm;
struct FakeKernel;

struct FakeOp {
  bool sends = false;
  std::byte* data = nullptr;
  size_t bytes = 0;
  int peer = 0;
  FakeKernel* kernel = nullptr;
  FakeOp* mate = nullptr;  // once both are launched
  bool done = false;
};

// One group of one rank.
struct FakeKernel {
  std::shared_ptr<FakeComm> comm;
  uint64_t number = 0;  // of the communicator's
  cuda::Stream stream = nullptr;
  std::vector<std::unique_ptr<FakeOp>> ops;
  bool running = false, over = false;
};

struct FakeWorld {
  int ranks = 0;
  std::vector<std::shared_ptr<FakeComm>> comms;  // null: not there yet, or gone
  int joined = 0, finalized = 0;
  bool broken = false;
  // Launched and without a mate yet, by sender and receiver.
  std::map<std::pair<int, int>, std::deque<FakeOp*>> sends, receives;
  std::vector<std::shared_ptr<FakeKernel>> kernels;  // all, so that mates stay valid
};

struct FakeComm {
  enum class State { kInit, kIdle, kLaunching, kFinalizing, kFinalized };
  std::shared_ptr<FakeWorld> world;
  int rank = 0;
  State state = State::kInit;
  int asks = 0;  // until it is through
  nccl::Result error = nccl::kSuccess;
  bool aborted = false;
  std::thread::id thread;
  uint64_t kernels = 0, unfinished = 0;
  std::shared_ptr<FakeKernel> launching;
};

class FakeState final : public FakeNccl {
 public:
  static FakeState& Get();
  ~FakeState();

  void Reset(const Options& options) override;
  void HoldInit(bool hold) override;
  void FailRank(int rank, nccl::Result error) override;
  void StallRank(int rank) override;
  void CorruptByte(size_t at) override;
  std::vector<std::string> violations() override;
  size_t live_communicators() override;
  uint64_t groups() override;
  uint64_t sends() override;
  uint64_t most_sends_a_group() override;

  int version();
  nccl::Result Init(nccl::Comm* comm, int ranks, const nccl::UniqueId& id, int rank,
                    const nccl::Config* config);
  nccl::Result Finalize(nccl::Comm comm);
  nccl::Result Destroy(nccl::Comm comm);
  nccl::Result Abort(nccl::Comm comm);
  nccl::Result Ask(nccl::Comm comm, nccl::Result* error);
  nccl::Result GroupStart();
  nccl::Result GroupEnd();
  nccl::Result Add(bool sends, std::byte* data, size_t bytes, int type, int peer, nccl::Comm comm,
                   cuda::Stream stream);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // All require mutex_.
  void Violation(const std::string& what);
  // Null, and a violation, if there is none or it is not this thread's.
  std::shared_ptr<FakeComm> Find(nccl::Comm comm, const char* what);
  nccl::Result Launch(const std::shared_ptr<FakeKernel>& kernel);
  void Match(FakeOp* send, FakeOp* receive);
  void Break(FakeWorld* world, const std::string& why);
  void LookForDeadlock(FakeWorld* world);
  bool Stalled(const FakeComm& comm) const { return stalled_.contains(comm.rank); }
  void Forget(const std::shared_ptr<FakeComm>& comm);

  void ForgetWorlds();
  std::byte* FindMemory(std::byte* memory) const;

  void Run(FakeKernel* kernel);

  std::mutex mutex_;
  std::condition_variable changed_;
  Options options_;
  std::mt19937_64 random_;
  bool hold_init_ = false;
  std::map<int, nccl::Result> failing_;
  std::set<int> stalled_;
  std::optional<size_t> corrupt_at_;
  std::vector<std::string> violations_;
  std::map<std::string, std::shared_ptr<FakeWorld>> worlds_;  // by unique id
  std::map<FakeComm*, std::shared_ptr<FakeComm>> comms_;
  uint64_t groups_ = 0, sends_ = 0, most_sends_ = 0;
};

}  // namespace spccl
