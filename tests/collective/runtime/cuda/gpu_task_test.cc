// Operations of one node's ranks on fake GPUs, against the oracle.
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collective/plan/partition.h"
#include "collective/runtime/cuda/gpu_plan.h"
#include "collective/runtime/cuda/make_gpu_task.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cuda/draw_slice.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/runtime/cuda/gpu_ranks.h"
#include "tests/collective/runtime/cuda/outcome.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/seed.h"
#include "tests/support/thinning.h"

namespace spccl::runtime {
namespace {

using policy::Algorithm;
using policy::Codec;
using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::Doing;
using spccl::testing::DrawSliceBytes;
using spccl::testing::ExactElements;
using spccl::testing::FirstDifference;
using spccl::testing::FramesOut;
using spccl::testing::GpuRanks;
using spccl::testing::Outcome;
using spccl::testing::TheGpus;
using ::testing::HasSubstr;

constexpr Codec kCodecs[] = {Codec::kAuto, Codec::kPici, Codec::kPiciColumn, Codec::kCoo,
                             Codec::kGap};

struct Case {
  OpDesc op;
  std::vector<int> gpus = {0, 0};  // of each rank
  policy::Settings settings;
  double sparsity = 0.9;
  bool specials = false;
  uint64_t in_place = 0, resets = 0;
  size_t slice_bytes = 1024;
  uint32_t open_lanes = 0;

  uint32_t ranks() const { return static_cast<uint32_t>(gpus.size()); }
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(NameOf(c.op.kind)), " ", std::string(NameOf(c.op.dtype)), " ",
                      std::string(NameOf(c.op.redop)), " count ", c.op.count, " root ", c.op.root,
                      " gpus ", absl::StrJoin(c.gpus, ","), " ",
                      std::string(policy::NameOf(c.settings.algorithm)), " codec ",
                      std::string(policy::NameOf(c.settings.codec)), " sparsity ", c.sparsity,
                      " in place ", c.in_place, " resets ", c.resets, " slice ", c.slice_bytes);
}

std::vector<Bytes> Inputs(const Case& c, std::mt19937_64* random) {
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, SendElements(c.op, c.ranks()), c.sparsity,
                                   c.op.redop == RedOp::kProd, c.specials, random));
  }
  return inputs;
}

absl::StatusOr<std::shared_ptr<Task>> Make(const Case& c, const GpuRanks& ranks, DoneFn done) {
  auto task =
      MakeGpuTask(TheGpus(), c.op, ranks.buffers(), c.settings,
                  {.slice_bytes = c.slice_bytes, .open_lanes = c.open_lanes}, std::move(done));
  if (!task.ok()) return task.status();
  return std::shared_ptr<Task>(*std::move(task));
}

void ExpectRight(const Case& c, std::mt19937_64* random, OpStats* stats = nullptr) {
  SCOPED_TRACE(Describe(c));
  const std::vector<Bytes> inputs = Inputs(c, random);
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  GpuRanks ranks(TheGpus(), c.op, inputs, c.gpus, c.in_place, c.resets);
  ranks.EnqueueAll();
  Outcome outcome;
  auto task = Make(c, ranks, outcome.Fn());
  ASSERT_TRUE(task.ok()) << task.status();
  ASSERT_TRUE((*task)->RunsItself());
  (*task)->Start();
  const std::optional<OpResult> result = outcome.Wait();
  ASSERT_TRUE(result.has_value()) << "it does not end: " << Doing((*task)->Look());
  ASSERT_TRUE(result->status.ok()) << result->status;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto difference = FirstDifference(c.op.dtype, ranks.Received(rank), expected[rank]);
    ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
    EXPECT_EQ(ranks.order(rank).done->load(),
              (c.resets >> rank & 1) != 0 ? 0 : ranks.order(rank).value);
    if ((c.resets >> rank & 1) != 0) {
      EXPECT_EQ(ranks.order(rank).ready->load(), 0U);
    }
  }
  EXPECT_EQ(outcome.calls(), 1);
  EXPECT_EQ(FramesOut(), 0U);
  if (stats != nullptr) *stats = result->stats;
}

TEST(GpuTaskTest, DenseAllReduceOverRanksOfOneGpu) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 10'000};
  c.gpus = {0, 0, 0};
  c.settings.codec = Codec::kDense;
  ExpectRight(c, &random);
}

TEST(GpuTaskTest, EveryOperationTypeAndReductionLocalAndRing) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : {Algorithm::kLocal, Algorithm::kRing}) {
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
        for (int redop = 0; redop < (Reduces(static_cast<OpKind>(kind)) ? kRedOpCount : 1);
             ++redop) {
          Case c;
          c.op = {.kind = static_cast<OpKind>(kind),
                  .dtype = static_cast<DType>(dtype),
                  .redop = static_cast<RedOp>(redop),
                  .count = 1 + random() % 1500};
          c.gpus.clear();
          for (uint64_t ranks = 1 + random() % 5; ranks > 0; --ranks) {
            c.gpus.push_back(static_cast<int>(random() % 2));
          }
          c.op.root = static_cast<uint32_t>(random() % c.ranks());
          c.settings.algorithm = algorithm;
          c.settings.codec = kCodecs[random() % std::size(kCodecs)];
          c.in_place = random();
          ExpectRight(c, &random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(GpuTaskTest, SparseEqualsDenseProperty) {
  std::mt19937_64 random(TestSeed());
  constexpr double kSparsities[] = {0, 0.3, 0.5, 0.9, 0.99, 1};
  constexpr uint64_t kCounts[] = {0, 1, 2, 15, 16, 17, 63, 255, 1023, 4095, 4096, 4097, 9001};
  for (int round = 0; round < Thinned(40); ++round) {
    Case c;
    c.op = {.kind = static_cast<OpKind>(random() % kOpKindCount),
            .dtype = static_cast<DType>(random() % kDTypeCount),
            .redop = random() % 3 == 0 ? static_cast<RedOp>(random() % kRedOpCount) : RedOp::kSum,
            .count = kCounts[random() % std::size(kCounts)]};
    const uint64_t most_gpus = uint64_t{1} << random() % 3;
    c.gpus.clear();
    for (uint64_t ranks = 1 + random() % 8; ranks > 0; --ranks) {
      c.gpus.push_back(static_cast<int>(random() % most_gpus));
    }
    c.op.root = static_cast<uint32_t>(random() % c.ranks());
    c.settings.algorithm = random() % 2 == 0 ? Algorithm::kRing : Algorithm::kLocal;
    c.settings.codec = static_cast<Codec>(random() % policy::kCodecCount);
    c.settings.pici = c.settings.coo = {.intra = static_cast<double>(random() % 11) / 10,
                                        .inter = static_cast<double>(random() % 11) / 10,
                                        .ag = static_cast<double>(random() % 11) / 10};
    c.sparsity = kSparsities[random() % std::size(kSparsities)];
    c.specials = c.op.redop == RedOp::kSum && random() % 2 == 0;
    c.in_place = random();
    c.resets = random() & random();
    c.slice_bytes = DrawSliceBytes(c.op, c.ranks(), 9, &random);
    c.open_lanes = static_cast<uint32_t>(random() % 5);
    ExpectRight(c, &random);
    if (HasFatalFailure()) return;
  }
}

TEST(GpuTaskTest, SlicesOfTheirOwnSizeByDefault) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.dtype = DType::kBfloat16, .count = 3'000'001};
  c.gpus = {0, 1};
  c.slice_bytes = 0;
  ExpectRight(c, &random);
}

TEST(GpuTaskTest, RingsSendSparsely) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 8192};
  c.gpus = {0, 0, 1, 1};
  c.settings = {.algorithm = Algorithm::kRing, .codec = Codec::kPici};
  c.sparsity = 0.95;
  c.slice_bytes = 8192 * 4;
  OpStats stats;
  ExpectRight(c, &random, &stats);
  EXPECT_EQ(stats.sends_by_format[static_cast<size_t>(Format::kPici)], 24U);
  EXPECT_LT(stats.wire_bytes * 4, stats.dense_bytes);
  EXPECT_EQ(stats.result_elements, c.op.count);
}

// Across four GPUs, of which two do not reach each other. One lane at a time: the first tries.
TEST(GpuTaskTest, GpusOfANodeExchangeSlicesCompressed) {
  std::mt19937_64 random(TestSeed());
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kInt8, DType::kFloat64}) {
      for (const Codec codec : kCodecs) {
        for (const bool sparse : {true, false}) {
          Case c;
          c.op = {.kind = static_cast<OpKind>(kind), .dtype = dtype, .count = 3000};
          c.op.redop = random() % 3 == 0 && IsFloat(dtype) ? RedOp::kAvg : RedOp::kSum;
          c.gpus = {3, 0, 1, 2, 2, 1};
          c.op.root = static_cast<uint32_t>(random() % c.ranks());
          c.settings = {.algorithm = Algorithm::kLocal, .codec = codec};
          c.sparsity = sparse ? 0.98 : 0.1;
          c.in_place = random();
          c.slice_bytes = 4096;
          c.open_lanes = 1;
          OpStats stats;
          ExpectRight(c, &random, &stats);
          if (HasFatalFailure()) return;
          if (sparse) {
            EXPECT_GT(stats.wire_bytes, 0U) << Describe(c);
            EXPECT_LT(stats.wire_bytes, stats.dense_bytes) << Describe(c);
          } else {
            EXPECT_EQ(stats.wire_bytes, 0U) << Describe(c);
          }
        }
      }
    }
  }
}

TEST(GpuTaskTest, NothingIsTouchedBeforeItsRankIsReady) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t resets : {0, 2}) {
    Case c;
    c.op = {.count = 5000};
    c.gpus = {0, 1};
    c.resets = resets;
    const std::vector<Bytes> inputs = Inputs(c, &random);
    const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
    GpuRanks ranks(TheGpus(), c.op, inputs, c.gpus, 0, resets);
    ranks.Enqueue(0);
    ranks.Enqueue(1, /*held=*/true);
    Outcome outcome;
    auto task = Make(c, ranks, outcome.Fn());
    ASSERT_TRUE(task.ok()) << task.status();
    (*task)->Start();
    // It cannot end, however long this takes.
    std::this_thread::yield();
    EXPECT_EQ(outcome.calls(), 0);
    const TaskLook look = (*task)->Look();
    ASSERT_FALSE(look.lines.empty());
    ranks.LetGo();
    const std::optional<OpResult> result = outcome.Wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->status.ok()) << result->status;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_FALSE(FirstDifference(c.op.dtype, ranks.Received(rank), expected[rank]).has_value());
    }
  }
}

// More operations wait than there are streams for waiting: the others are polled, and all end.
TEST(GpuTaskTest, ManyWaitAtATime) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 100};
  c.gpus = {0, 0};
  constexpr size_t kOperations = 24;
  const std::vector<Bytes> inputs = Inputs(c, &random);
  std::vector<std::unique_ptr<GpuRanks>> ranks;
  std::vector<Outcome> outcomes(kOperations);
  std::vector<std::shared_ptr<Task>> tasks;
  for (size_t i = 0; i < kOperations; ++i) {
    ranks.push_back(std::make_unique<GpuRanks>(TheGpus(), c.op, inputs, c.gpus, 0));
    ranks[i]->Enqueue(0, /*held=*/true);
    ranks[i]->Enqueue(1, /*held=*/true);
    auto task = Make(c, *ranks[i], outcomes[i].Fn());
    ASSERT_TRUE(task.ok()) << task.status();
    tasks.push_back(*task);
    tasks[i]->Start();
  }
  for (size_t i = kOperations; i-- > 0;) {
    ranks[i]->LetGo();
    const auto result = outcomes[i].Wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->status.ok()) << result->status;
  }
}

TEST(GpuTaskTest, ADeadRankHoldsUpNobody) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t resets : {0, 3}) {
    Case c;
    c.op = {.count = 5000};
    c.gpus = {0, 1};
    const std::vector<Bytes> inputs = Inputs(c, &random);
    GpuRanks ranks(TheGpus(), c.op, inputs, c.gpus, 0, resets);
    ranks.Enqueue(0);  // rank 1 never comes
    Outcome outcome;
    auto task = Make(c, ranks, outcome.Fn());
    ASSERT_TRUE(task.ok()) << task.status();
    (*task)->Start();
    (*task)->Cancel(absl::AbortedError("rank 1 died"), 1);
    const std::optional<OpResult> result = outcome.Wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->status, absl::AbortedError("rank 1 died"));
    EXPECT_EQ(result->culprit_rank, 1);
    // The survivor's stream goes on; its buffer was not written.
    const Bytes received = ranks.Received(0);
    EXPECT_TRUE(std::all_of(received.begin(), received.end(),
                            [](std::byte b) { return b == std::byte{0xA5}; }));
    (*task)->Cancel(absl::AbortedError("again"), 0);
    EXPECT_EQ(outcome.calls(), 1);
    EXPECT_EQ(FramesOut(), 0U);
  }
}

TEST(GpuTaskTest, ARankThatTakesItsWordBackHoldsUpNobody) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t resets : {0, 3}) {
    Case c;
    c.op = {.count = 5000};
    c.gpus = {0, 1};
    const std::vector<Bytes> inputs = Inputs(c, &random);
    GpuRanks ranks(TheGpus(), c.op, inputs, c.gpus, 0, resets);
    ranks.Enqueue(0);
    Outcome outcome;
    auto task = Make(c, ranks, outcome.Fn());
    ASSERT_TRUE(task.ok()) << task.status();
    (*task)->Start();
    // What it was before. A counting word counts past the end: 0 would be later than its value.
    const GpuOrder& word = ranks.order(1);
    const uint32_t before = word.resets ? 0 : word.value - 1;
    std::thread liar([&] {
      for (int i = 0; i < 1'000'000; ++i) word.ready->store(before, std::memory_order_relaxed);
    });
    (*task)->Cancel(absl::AbortedError("rank 1 lies"), 1);
    liar.join();
    const std::optional<OpResult> result = outcome.Wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->status, absl::AbortedError("rank 1 lies"));
    (void)ranks.Received(0);
  }
}

TEST(GpuTaskTest, CancelBeforeTheStart) {
  Case c;
  c.op = {.count = 100};
  GpuRanks ranks(TheGpus(), c.op, std::vector<Bytes>(2, Bytes(400)), c.gpus, 0);
  ranks.EnqueueAll();
  Outcome outcome;
  auto task = Make(c, ranks, outcome.Fn());
  ASSERT_TRUE(task.ok()) << task.status();
  (*task)->Cancel(absl::AbortedError("enough"), 0);
  EXPECT_EQ(outcome.calls(), 1);
  (*task)->Start();
  EXPECT_EQ(outcome.calls(), 1);
  (void)ranks.Received(0);
}

TEST(GpuTaskTest, CancelInTheMiddleEndsOnceAndLetsGo) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    Case c;
    c.op = {.count = 16384};
    c.gpus = {0, 1, 0};
    c.settings = {.algorithm = round % 2 == 0 ? Algorithm::kRing : Algorithm::kLocal};
    const std::vector<Bytes> inputs = Inputs(c, &random);
    GpuRanks ranks(TheGpus(), c.op, inputs, c.gpus, 0);
    ranks.EnqueueAll();
    Outcome outcome;
    auto task = Make(c, ranks, outcome.Fn());
    ASSERT_TRUE(task.ok()) << task.status();
    std::thread canceller([&] { (*task)->Cancel(absl::AbortedError("enough"), 2); });
    (*task)->Start();
    canceller.join();
    const std::optional<OpResult> result = outcome.Wait();
    ASSERT_TRUE(result.has_value());
    if (!result->status.ok()) {
      EXPECT_EQ(result->status, absl::AbortedError("enough"));
    }
    EXPECT_EQ(outcome.calls(), 1);
    EXPECT_EQ(FramesOut(), 0U);
    for (uint32_t rank = 0; rank < 3; ++rank) (void)ranks.Received(rank);
  }
}

TEST(GpuTaskTest, RefusesWhatIsNotOnItsGpus) {
  const OpDesc op{.count = 100};
  GpuRanks ranks(TheGpus(), op, std::vector<Bytes>(2, Bytes(400)), {0, 0}, 0);
  std::vector<RankBuffers> buffers = ranks.buffers();
  std::byte host[400];
  buffers[1].send = MemoryView::Mapped(host);
  auto task = MakeGpuTask(TheGpus(), op, buffers, {}, {}, nullptr);
  EXPECT_EQ(task.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(task.status().message()), HasSubstr("rank 1"));
  buffers[1].send = MemoryView::Device(0x1000, 17);
  task = MakeGpuTask(TheGpus(), op, buffers, {}, {}, nullptr);
  EXPECT_EQ(task.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(OnGpu(buffers));
}

// Kernels have room for so many. Between nodes, too, where RailsOf is asked.
TEST(GpuTaskTest, RefusesMoreRanksThanAKernelTakes) {
  const OpDesc op{.count = 100};
  GpuRanks ranks(TheGpus(), op, std::vector<Bytes>(1, Bytes(400)), {0}, 0);
  const std::vector<RankBuffers> buffers(kMaxGpuRanks + 1, ranks.buffers()[0]);
  const auto task = MakeGpuTask(TheGpus(), op, buffers, {}, {}, nullptr);
  EXPECT_EQ(task.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(task.status().message()), HasSubstr("65 ranks of one node"));
}

TEST(GpuTaskTest, RefusesWhatIsNotAligned) {
  const OpDesc op{.count = 100};
  GpuRanks ranks(TheGpus(), op, std::vector<Bytes>(2, Bytes(400)), {0, 0}, 0);
  std::vector<RankBuffers> buffers = ranks.buffers();
  buffers[1].recv = MemoryView::Device(buffers[1].recv.address() + 2, 0);
  const auto task = MakeGpuTask(TheGpus(), op, buffers, {}, {}, nullptr);
  EXPECT_EQ(task.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(task.status().message()), HasSubstr("multiple of the 4 bytes"));
}

}  // namespace
}  // namespace spccl::runtime
