// The library against the real daemon: ranks as processes, every operation, type and kind of
// memory, checked against a plain oracle.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/rank_world.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/daemon_env.h"

namespace spccl::testing {
namespace {

enum class Memory { kShared, kRegistered, kOrdinary };
constexpr Memory kAllMemory[] = {Memory::kShared, Memory::kRegistered, Memory::kOrdinary};

// A rank's buffers for one operation, in memory of one kind.
class Buffers {
 public:
  Buffers(Memory memory, size_t bytes, spcclComm_t comm) : memory_(memory), comm_(comm) {
    bytes += 64;  // never empty
    if (memory == Memory::kShared) {
      void* data = nullptr;
      if (spcclMemAlloc(&data, bytes) == spcclSuccess) data_ = static_cast<std::byte*>(data);
    } else {
      ordinary_.resize(bytes);
      data_ = ordinary_.data();
    }
    if (memory == Memory::kRegistered && spcclCommRegister(comm, data_, bytes, &handle_) != 0) {
      data_ = nullptr;
    }
  }
  ~Buffers() {
    if (handle_ != nullptr) spcclCommDeregister(comm_, handle_);
    if (memory_ == Memory::kShared) spcclMemFree(data_);
  }
  std::byte* data() const { return data_; }

 private:
  const Memory memory_;
  const spcclComm_t comm_;
  Bytes ordinary_;
  std::byte* data_ = nullptr;
  void* handle_ = nullptr;
};

spcclResult_t Call(const OpDesc& op, const void* send, void* recv, spcclComm_t comm,
                   spcclStream_t stream) {
  const auto dtype = static_cast<spcclDataType_t>(op.dtype);
  const auto redop = static_cast<spcclRedOp_t>(op.redop);
  switch (op.kind) {
    case OpKind::kAllGather:
      return spcclAllGather(send, recv, op.count, dtype, comm, stream);
    case OpKind::kReduceScatter:
      return spcclReduceScatter(send, recv, op.count, dtype, redop, comm, stream);
    case OpKind::kAllReduce:
      return spcclAllReduce(send, recv, op.count, dtype, redop, comm, stream);
    case OpKind::kBroadcast:
      return spcclBroadcast(send, recv, op.count, dtype, static_cast<int>(op.root), comm, stream);
    case OpKind::kScatter:
      return spcclScatter(send, recv, op.count, dtype, static_cast<int>(op.root), comm, stream);
  }
  return spcclInternalError;
}

// Runs the operation with this rank's part of `send` and compares; an empty text if all is well.
std::string RunAndCompare(const OpDesc& op, const std::vector<Bytes>& send, const Bytes& expected,
                          Memory memory, bool in_place, const RankWorld& world) {
  const uint32_t rank = static_cast<uint32_t>(world.rank);
  const size_t share = rank * op.count * SizeOf(op.dtype);
  const size_t send_bytes = send[rank].size();
  const Buffers buffers(memory, send_bytes + expected.size() + 64, world.comm);
  if (buffers.data() == nullptr) return "no memory";
  std::byte* from = buffers.data();
  std::byte* to = from + send_bytes;
  if (in_place) {
    to = from;
    if (op.kind == OpKind::kAllGather) from += share;
    const bool to_share =
        op.kind == OpKind::kReduceScatter || (op.kind == OpKind::kScatter && op.root == rank);
    if (to_share) to += share;
  }
  if (send_bytes > 0) std::memcpy(from, send[rank].data(), send_bytes);
  if (Call(op, from, to, world.comm, nullptr) != spcclSuccess) {
    return spcclGetLastError(world.comm);
  }
  const Bytes got(to, to + expected.size());
  const auto difference = FirstDifference(op.dtype, expected, got);
  return difference ? absl::StrCat("element ", *difference, " differs") : "";
}

std::string Describe(const OpDesc& op, Memory memory, bool in_place) {
  return absl::StrCat(std::string(NameOf(op.kind)), " ", std::string(NameOf(op.dtype)), " ",
                      std::string(NameOf(op.redop)), " count ", op.count, " root ", op.root,
                      in_place ? " in place" : "", ", memory ", static_cast<int>(memory), ": ");
}

// Every rank draws the same inputs from the seed. Returns the number of failures.
int RunMatrix(const RankWorld& world, uint64_t seed, const MultiProcess::Report& report) {
  std::mt19937_64 random(seed);
  int failures = 0;
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int redop = 0; redop < kRedOpCount; ++redop) {
        OpDesc op{.kind = static_cast<OpKind>(kind), .dtype = static_cast<DType>(dtype)};
        if (Reduces(op.kind)) op.redop = static_cast<RedOp>(redop);
        if (!Reduces(op.kind) && redop > 0) break;
        if (HasRoot(op.kind)) op.root = random() % world.ranks;
        op.count = std::vector<uint64_t>{0, 1, 63, 300}[random() % 4];
        std::vector<Bytes> send;
        for (int rank = 0; rank < world.ranks; ++rank) {
          send.push_back(
              RandomElements(op.dtype, SendElements(op, world.ranks), 0.5, false, &random));
        }
        const Bytes expected = CollectiveOracle(op, send)[world.rank];
        for (const Memory memory : kAllMemory) {
          for (const bool in_place : {false, true}) {
            const std::string wrong = RunAndCompare(op, send, expected, memory, in_place, world);
            if (wrong.empty()) continue;
            ++failures;
            report(absl::StrCat("rank ", world.rank, ": ", Describe(op, memory, in_place), wrong,
                                "\n"));
            if (failures > 5) return failures;
          }
        }
      }
    }
  }
  return failures;
}

class EndToEndTest : public ::testing::TestWithParam<int> {};

TEST_P(EndToEndTest, EveryOperationTypeAndMemory) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  EXPECT_TRUE(RunRanks(GetParam(), [&](const RankWorld& world, const MultiProcess::Report& report) {
    return RunMatrix(world, seed, report);
  }));
}

TEST_P(EndToEndTest, TheSameThroughTheLibrarysOwnBuffers) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  EXPECT_TRUE(RunRanks(GetParam(),
                       [&](const RankWorld& world, const MultiProcess::Report& report) {
                         return RunMatrix(world, seed, report);
                       },
                       {{"SPCCL_FORCE_STAGING", "1"}}));
}

TEST_P(EndToEndTest, TheSameThroughRelays) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  EXPECT_TRUE(RunRanks(GetParam(),
                       [&](const RankWorld& world, const MultiProcess::Report& report) {
                         return RunMatrix(world, seed, report);
                       },
                       {{"SPCCL_RELAY_BYTES", "1"}}));
}

INSTANTIATE_TEST_SUITE_P(Ranks, EndToEndTest, ::testing::Values(1, 2, 3, 4, 8));

// Sums this rank's values `rounds` times on streams of its own; returns 0 if all came out right.
int SumOnStreams(const RankWorld& world) {
  constexpr int kStreams = 3, kRounds = 150;
  constexpr size_t kCount = 100;
  std::vector<spcclStream_t> streams(kStreams);
  for (auto& stream : streams) {
    if (spcclStreamCreate(&stream) != spcclSuccess) return __LINE__;
  }
  std::vector<std::vector<float>> send, recv;
  for (int round = 0; round < kRounds; ++round) {
    send.emplace_back(kCount, static_cast<float>(round + world.rank));
    recv.emplace_back(kCount);
    if (spcclAllReduce(send[round].data(), recv[round].data(), kCount, spcclFloat, spcclSum,
                       world.comm, streams[round % kStreams]) != spcclSuccess) {
      return __LINE__;
    }
  }
  for (const auto stream : streams) {
    if (spcclStreamDestroy(stream) != spcclSuccess) return __LINE__;
  }
  for (int round = 0; round < kRounds; ++round) {
    const int ranks = world.ranks;
    const int sum = round * ranks + ranks * (ranks - 1) / 2;
    if (recv[round] != std::vector<float>(kCount, static_cast<float>(sum))) return __LINE__;
  }
  return 0;
}

TEST(EndToEnd, StreamsKeepTheRanksTogether) {
  for (const char* how : {"", "SPCCL_FORCE_STAGING", "SPCCL_RELAY_BYTES"}) {
    std::map<std::string, std::string> environment;
    if (*how != 0) environment[how] = "1";
    EXPECT_TRUE(RunRanks(
        3, [](const RankWorld& world, const MultiProcess::Report&) { return SumOnStreams(world); },
        environment));
  }
}

// Many slices; not aligned; in place and not; two at once; and some ranks' memory is shared, so
// that the daemon declines.
int SumLarge(const RankWorld& world, const MultiProcess::Report& report) {
  constexpr size_t kCount = (size_t{5} << 20) / 4 + 77;
  spcclStream_t stream;
  if (spcclStreamCreate(&stream) != spcclSuccess) return __LINE__;
  for (const bool mixed : {false, true, false}) {
    const Memory memory = mixed && world.rank == 0 ? Memory::kShared : Memory::kOrdinary;
    const Buffers first(memory, kCount * 4 + 64, world.comm);
    const Buffers second(memory, kCount * 4 + 64, world.comm);
    const Buffers result(memory, kCount * 4 + 64, world.comm);
    auto* const a = reinterpret_cast<int32_t*>(first.data() + 4);
    auto* const b = reinterpret_cast<int32_t*>(second.data() + 12);
    auto* const c = reinterpret_cast<int32_t*>(result.data() + 20);
    for (size_t i = 0; i < kCount; ++i) {
      a[i] = static_cast<int32_t>(i) * (world.rank + 1);
      b[i] = a[i] + 1;
    }
    if (spcclAllReduce(a, c, kCount, spcclInt32, spcclSum, world.comm, stream) != 0 ||
        spcclAllReduce(b, b, kCount, spcclInt32, spcclSum, world.comm, nullptr) != 0 ||
        spcclStreamSynchronize(stream) != spcclSuccess) {
      report(spcclGetLastError(world.comm));
      return __LINE__;
    }
    const int sum = world.ranks * (world.ranks + 1) / 2;
    for (size_t i = 0; i < kCount; ++i) {
      const auto expected = static_cast<int32_t>(i) * sum;
      if (c[i] != expected || b[i] != expected + world.ranks) return __LINE__;
    }
  }
  return spcclStreamDestroy(stream) == spcclSuccess ? 0 : __LINE__;
}

TEST(EndToEnd, LargeOrdinaryMemory) {
  for (const int ranks : {1, 2, 5}) EXPECT_TRUE(RunRanks(ranks, SumLarge));
}

TEST(EndToEnd, LargeOrdinaryMemoryThroughTheRing) {
  EXPECT_TRUE(RunRanks(2, SumLarge, {{"SPCCL_ALGO", "ring"}}));
}

TEST(EndToEnd, ManyMoreOperationsThanTheRingsHold) {
  EXPECT_TRUE(RunRanks(2, [](const RankWorld& world, const MultiProcess::Report&) {
    constexpr int kCount = 2000;
    std::vector<int> send(kCount, world.rank + 1), recv(kCount);
    if (spcclGroupStart() != spcclSuccess) return __LINE__;
    for (int i = 0; i < kCount; ++i) {
      if (spcclAllReduce(&send[i], &recv[i], 1, spcclInt, spcclSum, world.comm, nullptr) != 0) {
        return __LINE__;
      }
    }
    if (spcclGroupEnd() != spcclSuccess) return __LINE__;
    return recv == std::vector<int>(kCount, 3) ? 0 : __LINE__;
  }));
}

// One process, a thread a rank.
int SumInThreads() {
  constexpr int kRanks = 4;
  spcclComm_t comms[kRanks];
  if (spcclCommInitAll(comms, kRanks, nullptr) != spcclSuccess) return __LINE__;
  std::vector<int> failed(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int round = 0; round < 100; ++round) {
        std::vector<double> send(257, rank), recv(257);
        failed[rank] += spcclAllReduce(send.data(), recv.data(), 257, spcclDouble, spcclSum,
                                       comms[rank], nullptr) != spcclSuccess ||
                        recv != std::vector<double>(257, 6.0);
      }
      failed[rank] += spcclCommDestroy(comms[rank]) != spcclSuccess;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed == std::vector<int>(kRanks) ? 0 : __LINE__;
}

// One thread, several ranks, in groups.
int SumInGroups() {
  constexpr int kRanks = 3;
  spcclComm_t comms[kRanks];
  if (spcclCommInitAll(comms, kRanks, nullptr) != spcclSuccess) return __LINE__;
  std::vector<int> send = {1, 10, 100}, recv(kRanks);
  spcclGroupStart();
  for (int rank = 0; rank < kRanks; ++rank) {
    spcclAllReduce(&send[rank], &recv[rank], 1, spcclInt, spcclSum, comms[rank], nullptr);
  }
  if (spcclGroupEnd() != spcclSuccess) return __LINE__;
  for (const spcclComm_t comm : comms) {
    if (spcclCommDestroy(comm) != spcclSuccess) return __LINE__;
  }
  return recv == std::vector<int>(kRanks, 111) ? 0 : __LINE__;
}

TEST(EndToEnd, RanksInOneProcess) {
  for (const char* relay_bytes : {"1000000", "1"}) {
    EXPECT_TRUE(RunRanks(1,
                         [](const RankWorld&, const MultiProcess::Report&) {
                           const int threads = SumInThreads();
                           return threads != 0 ? threads : SumInGroups();
                         },
                         {{"SPCCL_RELAY_BYTES", relay_bytes}}));
  }
}

// The ranks disagree: all get an error that has both values.
TEST(EndToEnd, DisagreementIsToldToAll) {
  EXPECT_TRUE(RunRanks(2, [](const RankWorld& world, const MultiProcess::Report& report) {
    float value = 1;
    const spcclResult_t result = spcclAllReduce(
        &value, &value, 1, spcclFloat, world.rank == 0 ? spcclSum : spcclMax, world.comm, nullptr);
    const std::string text = spcclGetLastError(world.comm);
    report(text + "\n");
    if (result != spcclInvalidUsage) return __LINE__;
    return text.find("sum") != std::string::npos && text.find("max") != std::string::npos
               ? 0
               : __LINE__;
  }));
}

// A program against a daemon of its own: its output, and that it ended well.
std::string OutputOf(const std::string& program) {
  auto daemon = SpawnedDaemon::Start();
  EXPECT_TRUE(daemon.ok()) << daemon.status();
  if (!daemon.ok()) return "";
  const std::string command =
      absl::StrCat("SPCCL_RUNTIME_DIR=", (*daemon)->runtime_dir(), " ", program, " 2>&1");
  FILE* pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << output;
  return output;
}

// The program of the README.
TEST(EndToEnd, TheFirstProgramRuns) {
  const std::string output = OutputOf(FIRST_PROGRAM);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(output,
                ::testing::HasSubstr(absl::StrCat("rank ", rank, ": every element is 6\n")));
  }
}

// Compiled against the header of release 0.1.
TEST(EndToEnd, AClientOfAnEarlierReleaseWorks) {
  EXPECT_EQ(OutputOf(CLIENT_OF_0_1), "works\n");
}

// The daemon is killed while ranks wait: each knows within a second.
TEST(EndToEnd, TheDaemonsDeathIsKnownAtOnce) {
  EXPECT_TRUE(RunRanks(2, [](const RankWorld& world, const MultiProcess::Report& report) {
    float value = 1;
    if (spcclAllReduce(&value, &value, 1, spcclFloat, spcclSum, world.comm, nullptr) != 0) {
      return __LINE__;
    }
    // The daemon completes one rank after the other: without this rank 0 could kill it in between.
    world.meet();
    if (world.rank == 0) {
      // Rank 1 never calls; the daemon dies by its own hand, so that nothing has to be timed.
      std::thread killer([&] { ::kill(world.daemon_pid, SIGKILL); });
      const auto start = std::chrono::steady_clock::now();
      const spcclResult_t result =
          spcclAllReduce(&value, &value, 1, spcclFloat, spcclSum, world.comm, nullptr);
      const auto waited = std::chrono::steady_clock::now() - start;
      killer.join();
      report(std::string(spcclGetLastError(nullptr)) + "\n");
      if (result != spcclSystemError || waited > std::chrono::seconds(1)) return __LINE__;
    }
    spcclResult_t async = spcclSuccess;
    while (async == spcclSuccess) {
      if (spcclCommGetAsyncError(world.comm, &async) != spcclSuccess) return __LINE__;
      std::this_thread::yield();
    }
    return async == spcclSystemError ? 0 : __LINE__;
  }));
}

// Memory that is not there fails the operation, and neither process dies.
TEST(EndToEnd, MemoryThatIsNotThereIsAnError) {
  EXPECT_TRUE(RunRanks(1, [](const RankWorld& world, const MultiProcess::Report& report) {
    if (std::getenv("SPCCL_FORCE_STAGING") != nullptr) return 0;
    float value = 1;
    const spcclResult_t result = spcclAllReduce(&value, reinterpret_cast<float*>(4096), 1,
                                                spcclFloat, spcclSum, world.comm, nullptr);
    report(std::string(spcclGetLastError(world.comm)) + "\n");
    return result == spcclInvalidArgument ? 0 : __LINE__;
  }));
}

}  // namespace
}  // namespace spccl::testing
