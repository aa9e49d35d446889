// All-reduces over fake GPUs of which a part goes over the host: against the oracle, and to the
// bit what they are without.
#include "collective/runtime/cuda/multipath_task.h"

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/collective/runtime/cuda/draw_slice.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/runtime/cuda/split_operation.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/seed.h"
#include "tests/support/thinning.h"

namespace spccl::runtime {
namespace {

using policy::Codec;
using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::DrawSliceBytes;
using spccl::testing::ExactElements;
using spccl::testing::ExpectedHostBytes;
using spccl::testing::FirstDifference;
using spccl::testing::Forced;
using spccl::testing::FramesOut;
using spccl::testing::RandomElements;
using spccl::testing::SplitCase;
using spccl::testing::SplitOperation;
using spccl::testing::TheGpus;

std::vector<Bytes> Run(const SplitCase& c, const std::vector<Bytes>& inputs,
                       std::shared_ptr<PathRates> paths, OpStats* stats) {
  SplitOperation running(TheGpus(), c, inputs, std::move(paths));
  running.ranks.EnqueueAll();
  running.Start();
  const OpResult result = running.Wait();
  EXPECT_TRUE(result.status.ok()) << result.status;
  std::vector<Bytes> received;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    received.push_back(running.ranks.Received(rank));
    const GpuOrder& order = running.ranks.order(rank);
    EXPECT_EQ(order.done->load(), (c.resets >> rank & 1) != 0 ? 0 : order.value);
  }
  EXPECT_EQ(running.outcome.calls(), 1);
  EXPECT_EQ(FramesOut(), 0U);
  *stats = result.stats;
  return received;
}

// Some values whose sums are exact, and some whose are rounded.
void ExpectRight(const SplitCase& c, std::mt19937_64* random) {
  SCOPED_TRACE(Describe(c));
  OpStats stats;
  std::vector<Bytes> inputs, rounded;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, c.op.count, 0.1, c.op.redop == RedOp::kProd,
                                   c.op.redop == RedOp::kSum, random));
    rounded.push_back(RandomElements(c.op.dtype, c.op.count, 0.1, false, random));
  }
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  std::vector<Bytes> received = Run(c, inputs, Forced(c.share), &stats);
  EXPECT_EQ(stats.host_path_bytes, ExpectedHostBytes(c));
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto difference = FirstDifference(c.op.dtype, received[rank], expected[rank]);
    ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
  }
  // Wherever a slice went, its bits are the same; but for the sign of zeros that were compressed.
  const std::vector<Bytes> without = Run(c, rounded, nullptr, &stats);
  EXPECT_EQ(stats.host_path_bytes, 0U);
  received = Run(c, rounded, Forced(c.share), &stats);
  if (c.settings.codec == Codec::kDense) {
    EXPECT_TRUE(received == without) << "other bits";
    return;
  }
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    EXPECT_FALSE(FirstDifference(c.op.dtype, received[rank], without[rank]).has_value());
  }
}

TEST(MultipathTaskTest, EveryTypeAndReductionOverTwoAndFourGpus) {
  std::mt19937_64 random(TestSeed());
  for (const std::vector<int>& gpus : {std::vector<int>{0, 1}, std::vector<int>{3, 0, 2, 1}}) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int redop = 0; redop < kRedOpCount; ++redop) {
        SplitCase c;
        c.op = {.dtype = static_cast<DType>(dtype), .redop = static_cast<RedOp>(redop)};
        c.op.count = 1 + random() % 3000;
        c.gpus = gpus;
        c.in_place = random();
        ExpectRight(c, &random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(MultipathTaskTest, AnyShareAnySizeProperty) {
  std::mt19937_64 random(TestSeed());
  constexpr uint64_t kCounts[] = {0, 1, 16, 17, 63, 255, 1023, 4095, 4096, 4097, 20'001};
  for (int round = 0; round < Thinned(40); ++round) {
    SplitCase c;
    c.op = {.dtype = static_cast<DType>(random() % kDTypeCount),
            .redop = static_cast<RedOp>(random() % kRedOpCount),
            .count = kCounts[random() % std::size(kCounts)]};
    c.gpus.clear();
    for (uint64_t ranks = 2 + random() % 7; ranks > 0; --ranks) {
      c.gpus.push_back(static_cast<int>(random() % 4));
    }
    c.settings.codec = random() % 3 == 0 ? Codec::kAuto : Codec::kDense;
    c.share = static_cast<double>(1 + random() % 99) / 100;
    c.slice_bytes = DrawSliceBytes(c.op, c.ranks(), 9, &random);
    c.host_slice_bytes = DrawSliceBytes(c.op, c.ranks(), 9, &random);
    // Some are long enough to be cut into pieces.
    if (round % 10 == 0) {
      c.op.count = 1'000'000 + random() % 100;
      c.slice_bytes = c.host_slice_bytes = size_t{1} << 20;
    }
    c.in_place = random();
    c.resets = random() & random();
    c.channels = static_cast<int>(1 + random() % 3);
    ExpectRight(c, &random);
    if (HasFatalFailure()) return;
  }
}

TEST(MultipathTaskTest, OneGpuOtherOperationsAndRingsGoOverTheLinksAlone) {
  std::mt19937_64 random(TestSeed());
  SplitCase c;
  c.op = {.count = 5000};
  const std::vector<Bytes> inputs(2, Bytes(c.bytes()));
  SplitCase other = c;
  other.gpus = {1, 1};
  EXPECT_EQ(SplitOperation(TheGpus(), other, inputs, Forced(0.5)).task->ForChannels(), nullptr);
  other = c;
  other.settings.algorithm = policy::Algorithm::kRing;
  EXPECT_EQ(SplitOperation(TheGpus(), other, inputs, Forced(0.5)).task->ForChannels(), nullptr);
  other = c;
  other.op.kind = OpKind::kBroadcast;
  EXPECT_EQ(SplitOperation(TheGpus(), other, inputs, Forced(0.5)).task->ForChannels(), nullptr);
  EXPECT_EQ(SplitOperation(TheGpus(), c, inputs, Forced(0)).task->ForChannels(), nullptr);
  EXPECT_NE(SplitOperation(TheGpus(), c, inputs, Forced(0.5)).task->ForChannels(), nullptr);
}

}  // namespace
}  // namespace spccl::runtime
