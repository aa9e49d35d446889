#include "bench/model/projection.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::bench::model {
namespace {

using policy::Algorithm;
using policy::Codec;

constexpr double kMiB = 1 << 20;
constexpr Collective kOps[] = {Collective::kAllGather, Collective::kReduceScatter,
                               Collective::kAllReduce};
constexpr Algorithm kAlgorithms[] = {Algorithm::kRing, Algorithm::kTwoLevelRing,
                                     Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling};

// 4 GPUs a node, kernels and rounds that take no time.
System OnlyLinks() {
  System system{.gpus_per_node = 4, .intra_rate = 300e9, .node_rate = 100e9};
  system.kernels.memory_rate = 1e30;
  return system;
}

System RandomSystem(std::mt19937_64& random) {
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>()(random));
  };
  System system{.gpus_per_node = 1U << (random() % 4),
                .intra_rate = between(10e9, 1e12),
                .node_rate = between(1e9, 1e12),
                .intra_alpha = between(1e-7, 1e-4),
                .inter_alpha = between(1e-7, 1e-4),
                .overlap = std::uniform_real_distribution<double>()(random),
                .fused = random() % 2 == 0};
  system.kernels.memory_rate = between(1e11, 1e13);
  system.kernels.shares.fill(between(0.05, 1));
  return system;
}

template <typename Body>
void ForRandomCases(int count, const Body& body) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < count; ++i) {
    const System system = RandomSystem(random);
    Work work{.op = kOps[random() % 3],
              .bytes = std::exp2(std::uniform_real_distribution<double>(16, 32)(random)),
              .gpus = system.gpus_per_node << (random() % 7 + 1),
              .density = std::uniform_real_distribution<double>()(random)};
    for (const Algorithm algorithm : kAlgorithms) {
      if (CanProject(algorithm, work, system)) body(algorithm, system, work);
    }
  }
}

double Seconds(Algorithm algorithm, const System& system, const Work& work,
               const Sending& sending) {
  return Project(algorithm, system, work, sending).seconds;
}

TEST(ProjectionTest, DenseRingByHand) {
  // Equation 2: 15 rounds, 15/16 of the buffer over the slowest edge.
  System system = OnlyLinks();
  system.intra_alpha = 1e-6;
  system.inter_alpha = 10e-6;
  const Work work{.op = Collective::kAllGather, .bytes = 1600e6, .gpus = 16};
  const Projection gather = Project(Algorithm::kRing, system, work, kDenseSending);
  // 4 of the 15 rounds are between nodes.
  EXPECT_NEAR(gather.seconds, 1500e6 / 100e9 + 4 * 10e-6 + 11 * 1e-6, 1e-12);
  EXPECT_EQ(gather.rounds, 15U);
  EXPECT_DOUBLE_EQ(gather.wire_bytes, 1500e6);
  const Work scatter{.op = Collective::kReduceScatter, .bytes = 1600e6, .gpus = 16};
  EXPECT_NEAR(Seconds(Algorithm::kRing, system, scatter, kDenseSending), gather.seconds, 1e-12);
  const Work reduce{.op = Collective::kAllReduce, .bytes = 1600e6, .gpus = 16};
  EXPECT_NEAR(Seconds(Algorithm::kRing, system, reduce, kDenseSending), 2 * gather.seconds, 1e-12);
}

TEST(ProjectionTest, DenseTwoLevelsByHand) {
  System system = OnlyLinks();
  system.intra_alpha = 1e-6;
  system.inter_alpha = 10e-6;
  const Work work{.op = Collective::kReduceScatter, .bytes = 1600e6, .gpus = 32};
  // 3/4 within the node at once; then a quarter over a quarter of the node's rate, 7/8 of it.
  const double local = 1200e6 / 300e9, between = 400e6 / 25e9 * 7 / 8;
  EXPECT_NEAR(Seconds(Algorithm::kTwoLevelRing, system, work, kDenseSending),
              local + 1e-6 + between + 7 * 10e-6, 1e-12);
  EXPECT_NEAR(Seconds(Algorithm::kHalvingDoubling, system, work, kDenseSending),
              local + 1e-6 + between + 3 * 10e-6, 1e-12);
  const Work all{.op = Collective::kAllReduce, .bytes = 1600e6, .gpus = 32};
  // Three times the whole shard, and an all-gather within the node.
  EXPECT_NEAR(Seconds(Algorithm::kRecursiveDoubling, system, all, kDenseSending),
              2 * (local + 1e-6) + 3 * (400e6 / 25e9 + 10e-6), 1e-12);
}

TEST(ProjectionTest, SparseGatherByHand) {
  // Equations 4 to 6, nothing overlapped, two nodes of one GPU: one sends its half to the other.
  System system{.gpus_per_node = 1, .node_rate = 10e9, .inter_alpha = 5e-6, .overlap = 0};
  system.kernels.memory_rate = 1e12;
  system.kernels.shares.fill(0.5);
  const Work work{.op = Collective::kAllGather, .bytes = 800e6, .gpus = 2, .density = 0.1};
  const double frame = 0.1 + 1.0 / 32 + 1.0 / 4096;  // of a dense byte
  const double compress = 400e6 * (1 + frame) / 0.5e12, decompress = compress;
  const Projection sparse =
      Project(Algorithm::kRing, system, work, {Codec::kPici, policy::kPiciThresholds});
  EXPECT_NEAR(sparse.seconds, 5e-6 + 400e6 * frame / 10e9 + compress + decompress, 1e-9);
  EXPECT_NEAR(sparse.wire_bytes, 400e6 * frame, 1);
  system.overlap = 1;
  EXPECT_NEAR(Seconds(Algorithm::kRing, system, work, {Codec::kPici, policy::kPiciThresholds}),
              5e-6 + std::max(400e6 * frame / 10e9, compress + decompress), 1e-9);
}

TEST(ProjectionTest, ReductionsGrowDenserByHand) {
  // Four nodes of one GPU, chunks of 100 MB: sums of 1, 2 and 3 inputs travel.
  System system{.gpus_per_node = 1, .node_rate = 10e9};
  system.kernels.memory_rate = 1e30;
  const Work work{.op = Collective::kReduceScatter, .bytes = 400e6, .gpus = 4, .density = 0.1};
  const Projection sparse =
      Project(Algorithm::kRing, system, work, {Codec::kPici, policy::kAutoThresholds});
  const double densities = 0.1 + 0.19 + 0.271;
  EXPECT_NEAR(sparse.wire_bytes, 100e6 * (densities + 3 * (1.0 / 32 + 1.0 / 4096)), 1);
  EXPECT_EQ(sparse.sparse_sends, 3U);
  // By the paper's thresholds what follows a sparsity of 50% or less goes dense: 0.6, then 0.36.
  const Work dense{.op = Collective::kReduceScatter, .bytes = 400e6, .gpus = 4, .density = 0.4};
  const Projection paper =
      Project(Algorithm::kRing, system, dense, {Codec::kPici, policy::kPiciThresholds});
  EXPECT_EQ(paper.sends, 3U);
  EXPECT_EQ(paper.sparse_sends, 2U);
}

TEST(ProjectionTest, DenseDataGainNothingAndLoseNothing) {
  ForRandomCases(300, [](Algorithm algorithm, const System& system, Work work) {
    work.density = 1;
    for (const Codec codec : {Codec::kPici, Codec::kCoo, Codec::kAuto}) {
      ASSERT_DOUBLE_EQ(Seconds(algorithm, system, work, {codec, policy::kAutoThresholds}),
                       Seconds(algorithm, system, work, kDenseSending))
          << NameOf(algorithm);
    }
  });
}

// Without thresholds, whose crossing is a step: these are below every sparsity.
TEST(ProjectionTest, SparserIsNeverSlower) {
  ForRandomCases(300, [](Algorithm algorithm, const System& system, Work work) {
    double before = 0;
    for (const double density : {0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.6, 0.9}) {
      work.density = density;
      const double seconds = Seconds(algorithm, system, work, {Codec::kPici, {-0.5, -0.5, -0.5}});
      ASSERT_GE(seconds, before * (1 - 1e-12)) << NameOf(algorithm) << " " << density;
      before = seconds;
    }
  });
}

// Sends choose one by one, and a receiver's next send may cost what this one gained: so not quite.
TEST(ProjectionTest, ChoosingIsHardlyEverSlowerThanDense) {
  double worst = 0;
  ForRandomCases(1000, [&](Algorithm algorithm, const System& system, const Work& work) {
    const double ratio = Seconds(algorithm, system, work, {Codec::kAuto, policy::kAutoThresholds}) /
                         Seconds(algorithm, system, work, kDenseSending);
    worst = std::max(worst, ratio);
    if (work.op == Collective::kAllGather) ASSERT_LE(ratio, 1);
  });
  EXPECT_LE(worst, 1.1);
}

TEST(ProjectionTest, WhereLinksAreAllThereIsTheSpeedUpIsTheWires) {
  const System system = OnlyLinks();
  for (const uint32_t gpus : {4U, 64U, 2048U}) {
    for (const double density : {0.001, 0.01, 0.2}) {
      const Work work{
          .op = Collective::kAllGather, .bytes = kMiB, .gpus = gpus, .density = density};
      for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTwoLevelRing}) {
        EXPECT_NEAR(Seconds(algorithm, system, work, kDenseSending) /
                        Seconds(algorithm, system, work, {Codec::kPici, policy::kAutoThresholds}),
                    1 / WireShare(Format::kPici, 4, density), 1e-6);
      }
    }
  }
}

TEST(ProjectionTest, WhereRoundsAreAllThereIsNothingIsGained) {
  System system = OnlyLinks();
  system.intra_alpha = system.inter_alpha = 1;
  const Work work{.op = Collective::kAllReduce, .bytes = kMiB, .gpus = 64, .density = 0.001};
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_NEAR(Seconds(algorithm, system, work, kDenseSending) /
                    Seconds(algorithm, system, work, {Codec::kPici, policy::kAutoThresholds}),
                1, 1e-4);
  }
}

TEST(ProjectionTest, FasterPartsNeverMakeItSlowerWhereSendsAreFixed) {
  ForRandomCases(300, [](Algorithm algorithm, const System& system, const Work& work) {
    const Sending paper{Codec::kPici, policy::kPiciThresholds};
    const double seconds = Seconds(algorithm, system, work, paper);
    System faster = system;
    faster.node_rate *= 2;
    ASSERT_LE(Seconds(algorithm, faster, work, paper), seconds);
    faster = system;
    faster.kernels.memory_rate *= 2;
    ASSERT_LE(Seconds(algorithm, faster, work, paper), seconds);
    faster = system;
    faster.overlap = 1;
    ASSERT_LE(Seconds(algorithm, faster, work, paper), seconds);
  });
}

TEST(ProjectionTest, BestIsTheFastest) {
  ForRandomCases(200, [](Algorithm algorithm, const System& system, const Work& work) {
    const Sending sending{Codec::kAuto, policy::kAutoThresholds};
    ASSERT_LE(ProjectBest(system, work, sending).projection.seconds,
              Seconds(algorithm, system, work, sending));
  });
}

TEST(ProjectionTest, WhatItCanProject) {
  const System system = OnlyLinks();
  const auto can = [&](Algorithm algorithm, uint32_t gpus, Collective op = Collective::kAllReduce) {
    return CanProject(algorithm, {.op = op, .gpus = gpus}, system);
  };
  EXPECT_FALSE(can(Algorithm::kRing, 1));
  EXPECT_FALSE(can(Algorithm::kRing, 6));  // a node and a half
  EXPECT_TRUE(can(Algorithm::kRing, 12));
  EXPECT_TRUE(can(Algorithm::kTwoLevelRing, 3));
  EXPECT_FALSE(can(Algorithm::kHalvingDoubling, 12));
  EXPECT_FALSE(can(Algorithm::kHalvingDoubling, 4));
  EXPECT_FALSE(can(Algorithm::kRecursiveDoubling, 8, Collective::kAllGather));
  EXPECT_FALSE(can(Algorithm::kTree, 8));
}

}  // namespace
}  // namespace spccl::bench::model
