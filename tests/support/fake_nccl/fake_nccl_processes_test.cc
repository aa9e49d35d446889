// Worlds of the fake NCCL whose ranks are in several processes, each with a fake CUDA.
#include "tests/support/fake_nccl/world_processes.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

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
  auto processes = Start({{0}, {1}}, [](const Rank& rank, const auto&) {
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

// Of a world that has failed, or whose maker is gone.
TEST(FakeNcclProcessesTest, WhoComesTooLateHearsOfIt) {
  for (const bool fails : {true, false}) {
    const Pipe pipe;
    auto alive = std::make_shared<Pipe>();
    MultiProcess processes(2, [&pipe, alive, fails](int process, const auto&) {
      if (process == 0) {
        const UniqueId id = MakeId();
        if (fails) {
          const Rank rank(0, 2, id);
          EXPECT_IN_PROCESS(rank.nccl().CommDestroy(rank.comm()) == kSuccess);
        }
        pipe.Give(id, 1);
        if (fails) alive->AwaitOthersEnd();
        return 0;
      }
      const UniqueId id = pipe.Take();
      if (!fails) alive->AwaitOthersEnd();
      const Rank rank(1, 2, id);
      EXPECT_IN_PROCESS(rank.AwaitFailure() == (fails ? kInternalError : kRemoteError));
      EXPECT_IN_PROCESS(HasViolation("rank 0, which is not finalized") == fails);
      rank.Abort();
      return 0;
    });
    alive.reset();
    EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
  }
}

}  // namespace
}  // namespace spccl::transport::nccl
