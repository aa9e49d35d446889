#include "collective/policy/plan_table.h"

#include <cmath>
#include <memory>
#include <random>

#include "collective/policy/choose_plan.h"
#include "gtest/gtest.h"

namespace spccl::policy {
namespace {

constexpr Pick kSplit{.algorithm = Algorithm::kSplit};
constexpr Pick kDoubling{.algorithm = Algorithm::kRecursiveDoubling, .slice_bytes = 1 << 20};

// All-reduces of 64 KiB to 1 MiB: dense ones split, sparser ones double, what is very sparse
// unknown.
std::shared_ptr<PlanTable> Table() {
  auto table = std::make_shared<PlanTable>();
  PlanGrid& grid = table->grids[static_cast<size_t>(OpKind::kAllReduce)];
  grid.first_size = SizeClass(64 << 10);
  grid.densities = 3;
  for (uint32_t size = grid.first_size; size <= SizeClass(1 << 20); ++size) {
    grid.picks.insert(grid.picks.end(), {kSplit, kDoubling, Pick{}});
  }
  return table;
}

TEST(PlanTableTest, SizesAreInHalfOctaves) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t bytes = 1 + (random() >> (20 + random() % 43));
    const double exact = 2 * std::log2(static_cast<double>(bytes));
    EXPECT_LE(std::abs(SizeClass(bytes) - exact), 0.5 + 1e-9) << bytes;
  }
  for (uint32_t c = 2; c < 80; ++c) EXPECT_EQ(SizeClass(BytesOfSizeClass(c)), c);
  EXPECT_EQ(SizeClass(0), 0U);
  EXPECT_LT(SizeClass(~uint64_t{0}), kSizeClasses + 1);
}

TEST(PlanTableTest, DensitiesAreInOctaves) {
  EXPECT_EQ(DensityClass(1), 0U);
  EXPECT_EQ(DensityClass(0.5), 1U);
  EXPECT_EQ(DensityClass(0.01), 7U);
  EXPECT_EQ(DensityClass(0), kDensityClasses - 1);
  for (double density = 1; density > 1e-4; density *= 0.97) {
    EXPECT_LE(std::abs(DensityClass(density) + std::log2(density)), 0.5 + 1e-9) << density;
  }
}

TEST(PlanTableTest, PicksHaveNames) {
  for (const Pick& pick : {kSplit, kDoubling}) EXPECT_EQ(PickFromName(NameOf(pick)), pick);
  EXPECT_EQ(NameOf(kDoubling), "recursive-doubling/1048576");
  for (const char* wrong : {"", "auto", "local", "slip", "split/", "split/4095", "split/-1",
                            "split/65536x", "split/99999999999", "/65536"}) {
    EXPECT_EQ(PickFromName(wrong), std::nullopt) << wrong;
  }
}

TEST(PlanTableTest, FindsWhatItKnowsAndNothingElse) {
  const auto table = Table();
  EXPECT_EQ(table->Find(OpKind::kAllReduce, 100'000, 1), kSplit);
  EXPECT_EQ(table->Find(OpKind::kAllReduce, 1 << 20, 0.5), kDoubling);
  EXPECT_EQ(table->Find(OpKind::kAllReduce, 1 << 20, 0.001), Pick{});  // the last column
  EXPECT_EQ(table->Find(OpKind::kAllReduce, 4096, 1), Pick{});
  EXPECT_EQ(table->Find(OpKind::kAllReduce, 2 << 20, 1), Pick{});
  EXPECT_EQ(table->Find(OpKind::kBroadcast, 1 << 20, 1), Pick{});
}

TEST(PlanTableTest, BytesAreOfTheWhole) {
  EXPECT_EQ(TotalBytes({.kind = OpKind::kAllGather, .count = 10}, 4), 160U);
  EXPECT_EQ(TotalBytes({.kind = OpKind::kReduceScatter, .count = 10}, 4), 160U);
  EXPECT_EQ(TotalBytes({.kind = OpKind::kAllReduce, .count = 10}, 4), 40U);
}

TEST(PlanTableTest, ChoosePlanGoesByTheTableUnlessAPlanIsFixed) {
  Tuning tuning;
  const OpDesc op{.kind = OpKind::kAllReduce, .count = 100'000};
  const Topology nodes{.nodes = 4, .ranks = 4, .most_ranks = 1};
  const Choice predicted = ChoosePlan(tuning, op, nodes);
  EXPECT_EQ(predicted.chooser, Chooser::kCostModel);
  tuning.table = Table();
  Choice choice = ChoosePlan(tuning, op, nodes);
  EXPECT_EQ(choice.chooser, Chooser::kTable);
  EXPECT_EQ(choice.algorithm, Algorithm::kSplit);
  EXPECT_EQ(choice.slice_bytes, 0U);
  tuning.densities.fill(0.4);
  choice = ChoosePlan(tuning, op, nodes);
  EXPECT_EQ(choice.algorithm, Algorithm::kRecursiveDoubling);
  EXPECT_EQ(choice.slice_bytes, uint64_t{1} << 20);
  // What must go dense is looked up as dense.
  tuning.codec = Codec::kDense;
  EXPECT_EQ(ChoosePlan(tuning, op, nodes).algorithm, Algorithm::kSplit);
  tuning.codec = Codec::kAuto;
  tuning.densities.fill(0.001);
  EXPECT_EQ(ChoosePlan(tuning, op, nodes).chooser, Chooser::kCostModel);
  tuning.densities.fill(1);
  tuning.algorithm = Algorithm::kHalvingDoubling;
  choice = ChoosePlan(tuning, op, nodes);
  EXPECT_EQ(choice.chooser, Chooser::kFixed);
  EXPECT_EQ(choice.algorithm, Algorithm::kHalvingDoubling);
}

// Nodes have copies of the table; equal tunings choose alike.
TEST(PlanTableTest, EqualTablesChooseAlike) {
  constexpr uint64_t kSeed = 11;
  std::mt19937_64 random(kSeed);
  Tuning here, there;
  here.table = Table();
  there.table = Table();
  ASSERT_NE(here.table, there.table);
  for (int i = 0; i < 2000; ++i) {
    here.densities.fill(std::exp2(-static_cast<double>(random() % 1000) / 100));
    there.densities = here.densities;
    EXPECT_TRUE(here == there);
    const OpDesc op{.kind = OpKind::kAllReduce, .count = 1 + random() % 1'000'000};
    const Topology nodes{.nodes = 4, .ranks = 8, .most_ranks = 2};
    const Choice a = ChoosePlan(here, op, nodes), b = ChoosePlan(there, op, nodes);
    ASSERT_EQ(a.algorithm, b.algorithm) << "seed " << kSeed << ", count " << op.count;
    ASSERT_EQ(a.slice_bytes, b.slice_bytes);
    ASSERT_EQ(a.chooser, b.chooser);
  }
  there.table = std::make_shared<PlanTable>();
  EXPECT_FALSE(here == there);
  there.table = nullptr;
  EXPECT_FALSE(here == there);
}

}  // namespace
}  // namespace spccl::policy
