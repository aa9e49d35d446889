#include "collective/runtime/host/local_task.h"

#include <sys/mman.h>

#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/rank_memory.h"
#include "tests/support/seed.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {
namespace {

using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::FirstDifference;
using spccl::testing::RandomElements;
using spccl::testing::RankMemory;
using spccl::testing::ResultBox;
using spccl::testing::RunTask;
using spccl::testing::ScratchMemory;
using ::testing::HasSubstr;

std::vector<Bytes> Inputs(const OpDesc& op, uint32_t ranks, std::mt19937_64* random) {
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(RandomElements(op.dtype, SendElements(op, ranks), 0.3, false, random));
  }
  return inputs;
}

struct Case {
  OpDesc op;
  uint32_t ranks;
  uint64_t in_place, remote;
  size_t slice_bytes;
  int threads;
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(NameOf(c.op.kind)), " ", std::string(NameOf(c.op.dtype)), " ",
                      std::string(NameOf(c.op.redop)), " count ", c.op.count, " root ", c.op.root,
                      " ranks ", c.ranks, " in place ", c.in_place, " remote ", c.remote, " slice ",
                      c.slice_bytes, " threads ", c.threads);
}

void ExpectRight(const Case& c, std::mt19937_64* random) {
  SCOPED_TRACE(Describe(c));
  const std::vector<Bytes> inputs = Inputs(c.op, c.ranks, random);
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  RankMemory memory(c.op, inputs, c.in_place, c.remote);
  ResultBox box;
  LocalTask task(c.op, memory.buffers(), c.slice_bytes, box.Fn());
  RunTask(&task, c.threads);
  ASSERT_EQ(box.calls(), 1);
  ASSERT_TRUE(box.result()->status.ok()) << box.result()->status;
  for (uint32_t rank = 0; rank < c.ranks; ++rank) {
    const auto difference = FirstDifference(c.op.dtype, memory.Received(rank), expected[rank]);
    ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
  }
}

// Every operation, with each rank's buffers in place or not, mapped or remote, in every mix.
TEST(LocalTaskTest, EveryMixOfInPlaceAndRemote) {
  std::mt19937_64 random(TestSeed());
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (uint64_t in_place = 0; in_place < 8; ++in_place) {
      for (uint64_t remote = 0; remote < 8; ++remote) {
        const OpDesc op{.kind = static_cast<OpKind>(kind), .root = 1, .count = 1237};
        ExpectRight({op, 3, in_place, remote, 1024, 1}, &random);
      }
    }
  }
}

TEST(LocalTaskTest, EveryTypeAndReduction) {
  std::mt19937_64 random(TestSeed());
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter}) {
        const OpDesc op{.kind = kind,
                        .dtype = static_cast<DType>(dtype),
                        .redop = static_cast<RedOp>(redop),
                        .count = 501};
        ExpectRight({op, 4, random() % 16, random() % 16, 512, 2}, &random);
      }
    }
  }
}

TEST(LocalTaskTest, CountsAroundTheSliceAndNone) {
  std::mt19937_64 random(TestSeed());
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (const uint32_t ranks : {1U, 2U, 5U, 64U}) {
      for (const uint64_t count : {0U, 1U, 15U, 16U, 17U, 31U, 33U, 100U}) {
        const OpDesc op{.kind = static_cast<OpKind>(kind),
                        .root = static_cast<uint32_t>(random() % ranks),
                        .count = count};
        ExpectRight({op, ranks, random(), random(), 64, 1}, &random);
      }
    }
  }
}

TEST(LocalTaskTest, SeveralThreadsAndTheDefaultSlice) {
  std::mt19937_64 random(TestSeed());
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (const uint64_t remote : {0U, 5U, 15U}) {
      const OpDesc op{.kind = static_cast<OpKind>(kind), .count = 70'001};
      ExpectRight({op, 4, random(), remote, 0, 4}, &random);
      ExpectRight({op, 4, random(), remote, 4096, 4}, &random);
    }
  }
}

TEST(LocalTaskTest, ASmallOperationIsOneRun) {
  std::vector<Bytes> inputs(2, Bytes(8));
  const OpDesc op{.count = 2};
  RankMemory memory(op, inputs, 0, 0);
  ResultBox box;
  LocalTask task(op, memory.buffers(), 0, box.Fn());
  ScratchMemory scratch;
  EXPECT_EQ(task.RunOne(scratch.span()), Progress::kDone);
  EXPECT_EQ(box.calls(), 1);
  EXPECT_EQ(task.RunOne(scratch.span()), Progress::kDone);
  EXPECT_EQ(box.calls(), 1);
}

// A rank whose memory is not there: the operation fails with that rank, its address and the size.
TEST(LocalTaskTest, AMissingBufferNamesItsRank) {
  constexpr size_t kBytes = 1 << 20;
  for (const bool in_send : {true, false}) {
    const OpDesc op{.count = kBytes / 4};
    std::vector<Bytes> inputs(3, Bytes(kBytes));
    RankMemory memory(op, inputs, 0, 0b010);
    std::vector<RankBuffers> buffers = memory.buffers();
    void* hole = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (in_send) ::mprotect(static_cast<std::byte*>(hole) + kBytes / 2, kBytes / 2, PROT_NONE);
    const MemoryView bad =
        MemoryView::Remote(testing::OwnMemory(), reinterpret_cast<uint64_t>(hole));
    (in_send ? buffers[1].send : buffers[1].recv) = bad;
    ResultBox box;
    LocalTask task(op, buffers, 65536, box.Fn());
    RunTask(&task, 2);
    ASSERT_EQ(box.calls(), 1);
    EXPECT_EQ(box.result()->culprit_rank, 1);
    EXPECT_EQ(box.result()->status.code(), absl::StatusCode::kInvalidArgument);
    const std::string message(box.result()->status.message());
    EXPECT_THAT(message, HasSubstr("rank 1"));
    EXPECT_THAT(message, HasSubstr(in_send ? "read 65536 bytes at 0x" : "write 65536 bytes at 0x"));
    ::munmap(hole, kBytes);
  }
}

TEST(LocalTaskTest, CancelBeforeTheStartAndAfterTheEnd) {
  const OpDesc op{.count = 1000};
  RankMemory memory(op, std::vector<Bytes>(2, Bytes(4000)), 0, 0);
  ResultBox box;
  LocalTask task(op, memory.buffers(), 64, box.Fn());
  task.Cancel(absl::AbortedError("rank 1 died"), 1);
  ASSERT_EQ(box.calls(), 1);
  EXPECT_EQ(box.result()->culprit_rank, 1);
  EXPECT_EQ(box.result()->status, absl::AbortedError("rank 1 died"));
  task.Cancel(absl::AbortedError("again"), 0);
  ScratchMemory scratch;
  EXPECT_EQ(task.RunOne(scratch.span()), Progress::kDone);
  EXPECT_EQ(box.calls(), 1);
}

// After DoneFn nobody touches the buffers: they are freed then, which the sanitizers watch.
TEST(LocalTaskTest, CancelInTheMiddleEndsOnceAndLetsGo) {
  for (int round = 0; round < 100; ++round) {
    const OpDesc op{.count = 65536};
    auto memory =
        std::make_unique<RankMemory>(op, std::vector<Bytes>(2, Bytes(4 * op.count)), 0, round % 4);
    ResultBox box;
    LocalTask task(op, memory->buffers(), 256, [&, done = box.Fn()](const OpResult& result) {
      memory.reset();
      done(result);
    });
    std::thread canceller([&] { task.Cancel(absl::AbortedError("enough"), 0); });
    RunTask(&task, 2);
    canceller.join();
    ASSERT_EQ(box.calls(), 1);
    if (!box.result()->status.ok()) {
      EXPECT_EQ(box.result()->status, absl::AbortedError("enough"));
    }
  }
}

}  // namespace
}  // namespace spccl::runtime
