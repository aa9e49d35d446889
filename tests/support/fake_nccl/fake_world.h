// What is behind fake_nccl.cc's functions: communicators, what they have issued, and the matching
// of sends and receives.
//
// Every process of a world has all of it: it hears of what ranks of the others do and treats it
// alike, in whatever order that comes, as sends and receives match in the order of each rank alone.
// The process that made the world's id is linked to the others, and hands on what they say.
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
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_nccl/fake_links.h"
#include "tests/support/fake_nccl/fake_nccl.h"

namespace spccl {

namespace nccl = transport::nccl;

struct FakeComm;
struct FakeKernel;

struct FakeCall {
  bool sends = false;
  int peer = 0;
  size_t bytes = 0;
};

struct FakeOp {
  FakeCall call;
  std::byte* data = nullptr;  // null: of another process
  FakeKernel* kernel = nullptr;
  int index = 0;                       // of the kernel's
  FakeOp* mate = nullptr;              // once both are launched
  std::optional<std::string> arrived;  // what is to be received
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
  nccl::Result error = nccl::kSuccess;  // of all its communicators
  std::string why;
  // Launched and without a mate yet, by sender and receiver.
  std::map<std::pair<int, int>, std::deque<FakeOp*>> sends, receives;
  // All, so that mates stay valid; by rank and number.
  std::map<std::pair<int, uint64_t>, std::shared_ptr<FakeKernel>> kernels;
  std::vector<FakeKernel*> waiting;  // that run, and may wait for others to run
  std::vector<std::shared_ptr<FakeLink>>
      links;  // to the id's maker, or that process's to all others

  // No kernel of it does anything any more.
  bool broken() const { return error == nccl::kInternalError; }
};

struct FakeComm {
  enum class State { kInit, kIdle, kLaunching, kFinalizing, kFinalized };
  std::shared_ptr<FakeWorld> world;
  int rank = 0;
  std::shared_ptr<FakeLink> link;  // to its process; null: this one
  State state = State::kInit;
  int asks = 0;  // until it is through
  nccl::Result error = nccl::kSuccess;
  bool aborted = false;
  std::thread::id thread;
  uint64_t kernels = 0, unfinished = 0;
  std::shared_ptr<FakeKernel> launching;
};

inline std::string Name(const FakeComm& comm) {
  return "rank " + std::to_string(comm.rank);
}
void AddOp(FakeKernel* kernel, const FakeCall& call, std::byte* data);

class FakeState final : public FakeNccl, FakeLinks::Owner {
 public:
  static FakeState& Get();

  void Reset(const Options& options) override;
  void HoldInit(bool hold) override;
  void FailRank(int rank, nccl::Result error) override;
  bool AwaitTold(int rank) override;
  void StallRank(int rank) override;
  void CorruptByte(size_t at) override;
  std::vector<std::string> violations() override;
  size_t live_communicators() override;
  uint64_t groups() override;
  uint64_t sends() override;
  uint64_t most_sends_a_group() override;

  int version();
  nccl::Result MakeId(nccl::UniqueId* id);
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

  // All require mutex_, but for Run.
  // Ends the world, if there is one. `from`: that has said so, and need not be told.
  void Violation(const std::string& what, FakeWorld* world = nullptr, FakeLink* from = nullptr);
  void Fail(FakeWorld* world, nccl::Result error, const std::string& why, FakeLink* from = nullptr);
  // Null, and a violation, if there is none or it is not this thread's.
  std::shared_ptr<FakeComm> Find(nccl::Comm comm, const char* what);
  std::shared_ptr<FakeWorld> WorldOf(const std::string& id);
  bool Join(int ranks, const std::shared_ptr<FakeComm>& comm);
  void Forget(const std::shared_ptr<FakeComm>& comm);
  void ForgetWorlds();

  nccl::Result Launch(const std::shared_ptr<FakeKernel>& kernel);
  nccl::Result Enqueue(const std::shared_ptr<FakeKernel>& kernel);
  void Place(const std::shared_ptr<FakeKernel>& kernel);
  void Match(FakeOp* send, FakeOp* receive);
  void Begin(FakeKernel* kernel);
  void LookForDeadlock(FakeWorld* world);
  bool Stalled(const FakeComm& comm) const { return stalled_.contains(comm.rank); }
  void Run(FakeKernel* kernel);
  bool Move(FakeKernel* kernel);
  void Send(FakeOp* op);
  std::byte* FindMemory(std::byte* memory) const;

  // To the world's other processes.
  void Tell(const FakeWorld& world, const FakeMessage& message, std::string_view bytes = {},
            const FakeLink* except = nullptr);
  void OnMessage(const std::shared_ptr<FakeLink>& link, const FakeMessage& message,
                 std::string_view bytes) override;
  void OnHello(const std::shared_ptr<FakeLink>& link, const std::string& id);
  void OnData(FakeWorld* world, const FakeMessage& message, std::string_view bytes);
  void OnLaunch(const std::shared_ptr<FakeComm>& comm, uint64_t number, std::string_view calls);
  void OnEnded(FakeLink* link) override;

  std::mutex mutex_;
  std::condition_variable changed_;
  Options options_;
  std::mt19937_64 random_;
  bool hold_init_ = false;
  std::map<int, nccl::Result> failing_;
  std::set<int> stalled_;
  std::set<int> told_;  // an error
  std::optional<size_t> corrupt_at_;
  std::vector<std::string> violations_;
  std::map<std::string, std::shared_ptr<FakeWorld>> worlds_;  // by unique id
  std::map<FakeComm*, std::shared_ptr<FakeComm>> comms_;
  uint64_t groups_ = 0, sends_ = 0, most_sends_ = 0;
  int ids_ = 0;
  FakeLinks links_{&mutex_, this};
};

}  // namespace spccl
