// Worlds of the fake NCCL whose ranks are in several processes, each with a fake CUDA.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collective/transport/nccl/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/fake_cuda/process_pair.h"
#include "tests/support/fake_nccl/fake_nccl.h"
#include "tests/support/multi_process.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

using spccl::testing::kTimeoutMs;
using spccl::testing::MultiProcess;

FakeNccl& Fake() {
  void* const handle = ::dlopen(SPCCL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  EXPECT_IN_PROCESS(handle != nullptr);
  return *reinterpret_cast<FakeNccl* (*)()>(::dlsym(handle, "fake_nccl"))();
}

// One process says what others are to know; made before the fork.
class Pipe {
 public:
  Pipe() { SPCCL_CHECK(::pipe(ends_) == 0); }
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) ::close(end);
    }
  }
  void Give(const UniqueId& id, size_t times) const {
    for (size_t i = 0; i < times; ++i) {
      EXPECT_IN_PROCESS(::write(ends_[1], &id, sizeof id) == sizeof id);
    }
  }
  UniqueId Take() const {
    UniqueId id;
    EXPECT_IN_PROCESS(::read(ends_[0], &id, sizeof id) == sizeof id);
    return id;
  }
  // Until all others have ended, of whom each has it, too.
  void AwaitOthersEnd() {
    ::close(std::exchange(ends_[1], -1));
    char none;
    EXPECT_IN_PROCESS(::read(ends_[0], &none, 1) == 0);
  }

 private:
  int ends_[2];
};

// A rank, on a GPU of its process: for one thread.
class Rank {
 public:
  Rank(int rank, int ranks, const UniqueId& id) : rank_(rank), ranks_(ranks) {
    EXPECT_IN_PROCESS(driver_->DevicePrimaryCtxRetain(&context_, rank % 2) == cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->CtxPushCurrent(context_) == cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->StreamCreateWithPriority(&stream_, cuda::kStreamNonBlocking, 0) ==
                      cuda::kSuccess);
    Config config;
    config.blocking = 0;
    EXPECT_IN_PROCESS(nccl_->CommInitRankConfig(&comm_, ranks, id, rank, &config) == kInProgress);
    EXPECT_IN_PROCESS(Await() == kSuccess);
    Meet();
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Until nothing is under way, or it fails; what came of it.
  Result Await() const {
    const int64_t until_ns = MonotonicNanos() + kTimeoutMs * 1'000'000;
    Result result = kInProgress;
    while (result == kInProgress && MonotonicNanos() < until_ns) {
      EXPECT_IN_PROCESS(nccl_->CommGetAsyncError(comm_, &result) == kSuccess);
      std::this_thread::yield();
    }
    return result;
  }
  // Until it fails, for whatever others do.
  Result AwaitFailure() const {
    const int64_t until_ns = MonotonicNanos() + kTimeoutMs * 1'000'000;
    Result result = kSuccess;
    while ((result == kSuccess || result == kInProgress) && MonotonicNanos() < until_ns) {
      EXPECT_IN_PROCESS(nccl_->CommGetAsyncError(comm_, &result) == kSuccess);
      std::this_thread::yield();
    }
    return result;
  }
  cuda::DevicePtr Take(size_t bytes) const {
    cuda::DevicePtr memory = 0;
    EXPECT_IN_PROCESS(driver_->MemAlloc(&memory, std::max<size_t>(bytes, 1)) == cuda::kSuccess);
    return memory;
  }
  void Write(cuda::DevicePtr to, const std::string& bytes) const {
    EXPECT_IN_PROCESS(driver_->MemcpyAsync(to, reinterpret_cast<cuda::DevicePtr>(bytes.data()),
                                           bytes.size(), stream_) == cuda::kSuccess);
  }
  std::string Read(cuda::DevicePtr from, size_t bytes) const {
    std::string read(bytes, '\0');
    EXPECT_IN_PROCESS(driver_->MemcpyAsync(reinterpret_cast<cuda::DevicePtr>(read.data()), from,
                                           bytes, stream_) == cuda::kSuccess);
    Synchronize();
    return read;
  }
  void Synchronize() const {
    EXPECT_IN_PROCESS(driver_->StreamSynchronize(stream_) == cuda::kSuccess);
  }
  void Send(cuda::DevicePtr data, size_t bytes, int to) const {
    EXPECT_IN_PROCESS(
        nccl_->Send(reinterpret_cast<void*>(data), bytes, kUint8, to, comm_, stream_) == kSuccess);
  }
  void Receive(cuda::DevicePtr data, size_t bytes, int from) const {
    EXPECT_IN_PROCESS(nccl_->Recv(reinterpret_cast<void*>(data), bytes, kUint8, from, comm_,
                                  stream_) == kSuccess);
  }
  Result Group(const std::function<void()>& calls) const {
    EXPECT_IN_PROCESS(nccl_->GroupStart() == kSuccess);
    calls();
    (void)nccl_->GroupEnd();
    return Await();
  }
  // Until all have come so far; those that are through may be up to something already.
  void Meet() const {
    const cuda::DevicePtr data = Take(2);
    (void)Group([&] {
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        Send(data, 1, peer);
        Receive(data + 1, 1, peer);
      }
    });
    Synchronize();
  }
  // By force; what is on the stream ends by that.
  void Abort() const {
    EXPECT_IN_PROCESS(nccl_->CommAbort(comm_) == kSuccess);
    Synchronize();
  }
  // That a group does not end, and what else the GPU does goes on.
  void ExpectWaiting() const {
    EXPECT_IN_PROCESS(driver_->StreamQuery(stream_) == cuda::kErrorNotReady);
    const cuda::DevicePtr data = Take(1);
    cuda::Stream other = nullptr;
    EXPECT_IN_PROCESS(driver_->StreamCreateWithPriority(&other, cuda::kStreamNonBlocking, 0) ==
                      cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->MemsetD8Async(data, 1, 1, other) == cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->StreamSynchronize(other) == cuda::kSuccess);
  }
  const Library& nccl() const { return *nccl_; }
  Comm comm() const { return comm_; }
  void Finish() const {
    EXPECT_IN_PROCESS(nccl_->CommFinalize(comm_) == kInProgress);
    EXPECT_IN_PROCESS(Await() == kSuccess);
    EXPECT_IN_PROCESS(nccl_->CommDestroy(comm_) == kSuccess);
  }

 private:
  const int rank_, ranks_;
  const std::shared_ptr<const cuda::Driver> driver_ = spccl::testing::LoadFakeDriver();
  const std::shared_ptr<const Library> nccl_ = *Library::Load(SPCCL_FAKE_NCCL);
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  Comm comm_ = nullptr;
};

UniqueId MakeId() {
  UniqueId id;
  EXPECT_IN_PROCESS((*Library::Load(SPCCL_FAKE_NCCL))->GetUniqueId(&id) == kSuccess);
  return id;
}

// The processes of a world: which ranks each has.
using Layout = std::vector<std::vector<int>>;

int RanksOf(const Layout& layout) {
  size_t ranks = 0;
  for (const auto& of_process : layout) ranks += of_process.size();
  return static_cast<int>(ranks);
}

// Runs `body` for each rank of each world, on a thread of its process. A world's id is made by the
// process of its number, which is there as long as others are if it has no rank.
MultiProcess Start(const Layout& layout,
                   std::function<void(Rank& rank, const MultiProcess::Report& report)> body,
                   size_t worlds = 1) {
  auto ids = std::make_shared<std::vector<Pipe>>(worlds);
  auto alive = std::make_shared<Pipe>();
  return MultiProcess(static_cast<int>(layout.size()),
                      [layout, ids, alive, body = std::move(body)](
                          int process, const MultiProcess::Report& report) {
                        if (process % 2 == 1) ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", "0", 1);
                        if (process == 0) ::setenv("SPCCL_FAKE_CUDA_DELAY_US", "200", 1);
                        const auto own = static_cast<size_t>(process);
                        if (own < ids->size()) (*ids)[own].Give(MakeId(), layout.size());
                        std::vector<std::thread> threads;
                        for (const Pipe& pipe : *ids) {
                          const UniqueId id = pipe.Take();
                          for (const int number : layout[own]) {
                            threads.emplace_back([&, id, number] {
                              Rank rank(number, RanksOf(layout), id);
                              body(rank, report);
                            });
                          }
                        }
                        for (std::thread& thread : threads) thread.join();
                        if (threads.empty()) alive->AwaitOthersEnd();
                        return 0;
                      });
}

bool HasViolation(const std::string& what) {
  const std::vector<std::string> all = Fake().violations();
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& one) { return one.find(what) != std::string::npos; });
}

std::string Noise(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string noise(bytes, '\0');
  for (char& one : noise) one = static_cast<char>(random());
  return noise;
}

// A group of random sends and receives, of which each rank has a part.
void RunGroup(const Rank& rank, std::mt19937_64* random) {
  struct Arriving {
    cuda::DevicePtr at;
    std::string expected;
  };
  std::vector<Arriving> arriving;
  const auto run = [&] {
    for (uint64_t frames = 1 + (*random)() % 8; frames > 0; --frames) {
      constexpr size_t kSizes[] = {1, 100, 5000, 1'000'000};  // the last: more than sockets take
      const int from = static_cast<int>((*random)() % rank.ranks());
      const int to = (from + 1 + static_cast<int>((*random)() % (rank.ranks() - 1))) % rank.ranks();
      const size_t bytes = (*random)() % kSizes[(*random)() % std::size(kSizes)];
      const uint64_t seed = (*random)();
      if (from == rank.rank()) {
        const cuda::DevicePtr data = rank.Take(bytes);
        if (bytes > 0) rank.Write(data, Noise(bytes, seed));
        rank.Send(data, bytes, to);
      } else if (to == rank.rank()) {
        arriving.push_back({rank.Take(bytes), Noise(bytes, seed)});
        rank.Receive(arriving.back().at, bytes, from);
      }
    }
  };
  EXPECT_IN_PROCESS(rank.Group(run) == kSuccess);
  if ((*random)() % 2 == 0) rank.Synchronize();
  for (const auto& [at, expected] : arriving) {
    EXPECT_IN_PROCESS(rank.Read(at, expected.size()) == expected);
  }
}

TEST(FakeNcclProcessesTest, MovesBytes) {
  auto processes = Start({{0}, {1}}, [](Rank& rank, const MultiProcess::Report&) {
    const cuda::DevicePtr data = rank.Take(5);
    if (rank.rank() == 0) rank.Write(data, "hello");
    EXPECT_IN_PROCESS(rank.Group([&] {
      rank.rank() == 0 ? rank.Send(data, 5, 1) : rank.Receive(data, 5, 0);
    }) == kSuccess);
    EXPECT_IN_PROCESS(rank.Read(data, 5) == "hello");
    rank.Finish();
    EXPECT_IN_PROCESS(Fake().violations().empty());
  });
  EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
}

void RunGroups(const Rank& rank) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 15; ++round) RunGroup(rank, &random);
  rank.Finish();
  EXPECT_IN_PROCESS(Fake().violations().empty());
}

TEST(FakeNcclProcessesTest, RandomGroups) {
  (void)TestSeed();  // all processes' is the same
  const std::vector<Layout> layouts = {
      {{0}, {1}}, {{0}, {1}, {2}}, {{1, 3}, {0}, {2, 4}}, {{}, {0}, {1}}};
  for (const Layout& layout : layouts) {
    auto processes = Start(layout, [](const Rank& rank, const auto&) { RunGroups(rank); });
    EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
  }
}

TEST(FakeNcclProcessesTest, TwoWorldsAtOnce) {
  (void)TestSeed();
  auto processes = Start(
      {{0, 1}, {2}, {3}}, [](const Rank& rank, const auto&) { RunGroups(rank); }, 2);
  EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
}

// All of the world's processes hear of it, whoever made the mistake.
TEST(FakeNcclProcessesTest, FindsSizesThatDiffer) {
  auto processes = Start({{0}, {1}, {2}}, [](const Rank& rank, const auto&) {
    const cuda::DevicePtr data = rank.Take(21);
    if (rank.rank() == 1) (void)rank.Group([&] { rank.Send(data, 20, 2); });
    if (rank.rank() == 2) (void)rank.Group([&] { rank.Receive(data, 21, 1); });
    EXPECT_IN_PROCESS(rank.AwaitFailure() == kInternalError);
    EXPECT_IN_PROCESS(HasViolation("rank 1 sends 20 bytes to rank 2, which receives 21"));
    rank.Abort();
  });
  EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
}

TEST(FakeNcclProcessesTest, FindsOrdersThatDiffer) {
  auto processes = Start({{0}, {1}, {2}}, [](const Rank& rank, const auto&) {
    const cuda::DevicePtr data = rank.Take(1);
    const int peer = 3 - rank.rank();
    if (rank.rank() > 0) {
      (void)rank.Group([&] { rank.Send(data, 1, peer); });
      (void)rank.Group([&] { rank.Receive(data, 1, peer); });
    }
    EXPECT_IN_PROCESS(rank.AwaitFailure() == kInternalError);
    EXPECT_IN_PROCESS(HasViolation("deadlock"));
    rank.Abort();
  });
  EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
}

TEST(FakeNcclProcessesTest, AViolationOfOneProcessEndsTheWorld) {
  auto processes = Start({{0}, {1}}, [](const Rank& rank, const auto&) {
    if (rank.rank() == 1) {
      std::thread([&] {
        Result result;
        EXPECT_IN_PROCESS(rank.nccl().CommGetAsyncError(rank.comm(), &result) != kSuccess);
      }).join();
    }
    EXPECT_IN_PROCESS(rank.AwaitFailure() == kInternalError);
    EXPECT_IN_PROCESS(HasViolation("of rank 1 by a second thread"));
    rank.Abort();
  });
  EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
}

TEST(FakeNcclProcessesTest, AViolationEndsTheProcessIfAsked) {
  auto processes = Start({{0}, {1}}, [](const Rank& rank, const auto&) {
    if (rank.rank() == 1) {
      ::setenv("SPCCL_FAKE_NCCL_VIOLATION", "abort", 1);
      (void)rank.nccl().GroupEnd();
    }
    EXPECT_IN_PROCESS(rank.AwaitFailure() == kRemoteError);
    rank.Abort();
  });
  const auto ends = processes.Wait(kTimeoutMs);
  EXPECT_EQ(ends[0].exit_code, 0);
  EXPECT_EQ(ends[1].signal, SIGABRT);
}

// In the midst of groups that all wait. The first has made the id.
TEST(FakeNcclProcessesTest, AProcessThatDiesIsMissed) {
  for (const int victim : {0, 2}) {
    auto processes = Start({{0}, {1}, {2}}, [](const Rank& rank, const auto& report) {
      const cuda::DevicePtr data = rank.Take(10);
      EXPECT_IN_PROCESS(rank.Group([&] { rank.Receive(data, 10, (rank.rank() + 1) % 3); }) ==
                        kSuccess);
      report("launched");
      EXPECT_IN_PROCESS(rank.AwaitFailure() == kRemoteError);
      rank.ExpectWaiting();
      rank.Abort();
    });
    for (int process = 0; process < 3; ++process) {
      EXPECT_TRUE(processes.AwaitReport(process, "launched", kTimeoutMs));
    }
    processes.Kill(victim, SIGKILL);
    const auto ends = processes.Wait(kTimeoutMs);
    for (int process = 0; process < 3; ++process) {
      if (process != victim) EXPECT_EQ(ends[static_cast<size_t>(process)].exit_code, 0);
    }
  }
}

}  // namespace
}  // namespace spccl::transport::nccl
