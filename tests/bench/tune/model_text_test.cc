#include "bench/tune/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "daemon/plan_models.h"
#include "tests/bench/tune/synthetic.h"
#include "tests/support/status_test.h"

namespace spccl::tune {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;

TEST(ModelTextTest, TheDaemonReadsWhatWasLearned) {
  const auto learned = Train(SyntheticCases(0.005, 1), {});
  ASSERT_THAT(learned, IsOk());
  const auto text = ModelText({*learned}, 8, "2026-11-28T12:00:00Z");
  ASSERT_THAT(text, IsOk());
  const auto model = daemon::ParsePlanModel(*text, "model.toml");
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->channels, 8u);
  ASSERT_EQ(model->tables.size(), learned->grids.size());
  for (const auto& [shape, grid] : learned->grids) {
    EXPECT_EQ(model->tables.at(shape).grids[static_cast<size_t>(OpKind::kAllReduce)], grid);
  }
  EXPECT_THAT(*text, HasSubstr("[quality.all_reduce]"));
  EXPECT_THAT(*text, HasSubstr("cost_model_mean_loss = 0."));
  EXPECT_THAT(QualityTable({*learned}), HasSubstr("all_reduce"));
}

TEST(ModelTextTest, MoreWaysThanLettersAreRefused) {
  Learned learned;
  policy::PlanGrid& grid = learned.grids[{.nodes = 2, .most_ranks = 1}];
  grid.densities = 1;
  for (uint64_t i = 0; i < 27; ++i) {
    grid.picks.push_back({.algorithm = policy::Algorithm::kSplit, .slice_bytes = 4096 + i});
  }
  EXPECT_TRUE(absl::IsResourceExhausted(ModelText({learned}, 0, "").status()));
  grid.picks.pop_back();
  EXPECT_THAT(ModelText({learned}, 0, ""), IsOk());
}

}  // namespace
}  // namespace spccl::tune
