// Worlds of the fake NCCL whose ranks are in several processes, each with a fake CUDA.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
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
    for (const int end : ends_) ::close(end);
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
  void Finish() {
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

// Runs `body` for each rank, on a thread of its process; the first process makes the id.
MultiProcess Start(const Layout& layout,
                   std::function<void(Rank& rank, const MultiProcess::Report& report)> body) {
  auto pipe = std::make_shared<Pipe>();
  const auto run = [layout, pipe, body = std::move(body)](int process,
                                                          const MultiProcess::Report& report) {
    if (process == 0) pipe->Give(MakeId(), layout.size());
    const UniqueId id = pipe->Take();
    std::vector<std::thread> threads;
    for (const int number : layout[static_cast<size_t>(process)]) {
      threads.emplace_back([&, number] {
        Rank rank(number, RanksOf(layout), id);
        body(rank, report);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return 0;
  };
  return MultiProcess(static_cast<int>(layout.size()), run);
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

TEST(FakeNcclProcessesTest, RandomGroups) {
  const uint64_t seed = TestSeed();
  for (const Layout& layout : {Layout{{0}, {1}}, Layout{{0}, {1}, {2}}, Layout{{1, 3}, {0}, {2, 4}},
                               Layout{{}, {0}, {1}}}) {
    auto processes = Start(layout, [seed](Rank& rank, const MultiProcess::Report&) {
      std::mt19937_64 random(seed);
      for (int round = 0; round < 15; ++round) RunGroup(rank, &random);
      rank.Finish();
      EXPECT_IN_PROCESS(Fake().violations().empty());
    });
    EXPECT_TRUE(AllSucceeded(processes.Wait(2 * kTimeoutMs)));
  }
}

}  // namespace
}  // namespace spccl::transport::nccl
