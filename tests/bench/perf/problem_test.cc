#include "bench/perf/problem.h"

#include <gtest/gtest.h>

namespace spccl::bench {
namespace {

TEST(ParseSize, ReadsUnitsOfPowersOf1024) {
  EXPECT_EQ(ParseSize("8").value(), 8u);
  EXPECT_EQ(ParseSize("64K").value(), 65536u);
  EXPECT_EQ(ParseSize("16m").value(), 16u << 20);
  EXPECT_EQ(ParseSize("2G").value(), uint64_t{2} << 30);
}

TEST(ParseSize, RefusesWhatIsNotASize) {
  for (const char* text : {"", "0", "M", "-8", "16MB", "1.5M", " 8", "8 ", "99999999999999999999",
                           "18446744073709551615", "999999999999G"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << '"' << text << '"';
  }
}

TEST(ParseSizes, ReadsAList) {
  EXPECT_EQ(ParseSizes("8,64K").value(), (std::vector<uint64_t>{8, 65536}));
  EXPECT_FALSE(ParseSizes("8,").ok());
  EXPECT_FALSE(ParseSizes("").ok());
}

TEST(MakeProblem, CountsAsNcclTestsDo) {
  const auto make = [](Collective kind) {
    return MakeProblem(kind, DType::kFloat32, RedOp::kSum, 4, 1 << 20).value();
  };
  const Problem all_reduce = make(Collective::kAllReduce);
  EXPECT_EQ(all_reduce.op.count, 1u << 18);
  EXPECT_EQ(all_reduce.send_bytes(), 1u << 20);
  EXPECT_EQ(all_reduce.recv_bytes(), 1u << 20);
  const Problem all_gather = make(Collective::kAllGather);
  EXPECT_EQ(all_gather.op.count, 1u << 16);
  EXPECT_EQ(all_gather.send_bytes(), 1u << 18);
  EXPECT_EQ(all_gather.recv_bytes(), 1u << 20);  // the size is the whole output
  const Problem reduce_scatter = make(Collective::kReduceScatter);
  EXPECT_EQ(reduce_scatter.send_bytes(), 1u << 20);  // the size is the whole input
  EXPECT_EQ(reduce_scatter.recv_bytes(), 1u << 18);
  EXPECT_EQ(make(Collective::kBroadcast).recv_bytes(), 1u << 20);
  const Problem scatter = make(Collective::kScatter);
  EXPECT_EQ(scatter.send_bytes(), 1u << 20);  // the size is the root's whole input
  EXPECT_EQ(scatter.recv_bytes(), 1u << 18);
}

TEST(MakeProblem, RoundsDownToWhatDivides) {
  const Problem problem =
      MakeProblem(Collective::kAllGather, DType::kFloat64, RedOp::kSum, 3, 1000).value();
  EXPECT_EQ(problem.op.count, 41u);  // 1000 / 3 / 8
  EXPECT_EQ(problem.bytes, 41u * 3 * 8);
  EXPECT_FALSE(MakeProblem(Collective::kAllGather, DType::kFloat64, RedOp::kSum, 3, 23).ok());
}

TEST(BusFactor, IsNcclTests) {
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kReduceScatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kBroadcast, 8), 1.0);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 1), 0.0);
}

TEST(AlgorithmBandwidth, IsIn1e9BytesPerSecond) {
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(1'000'000'000, 1e6), 1.0);
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(1000, 1), 1.0);
}

TEST(InPlace, PutsEachRanksPartWhereNcclDoes) {
  Problem problem =
      MakeProblem(Collective::kAllGather, DType::kFloat32, RedOp::kSum, 4, 1600).value();
  EXPECT_EQ(InPlace(problem, 3).send, 1200u);
  EXPECT_EQ(InPlace(problem, 3).recv, 0u);
  problem.op.kind = Collective::kReduceScatter;
  EXPECT_EQ(InPlace(problem, 3).send, 0u);
  EXPECT_EQ(InPlace(problem, 3).recv, 1200u);
}

}  // namespace
}  // namespace spccl::bench
