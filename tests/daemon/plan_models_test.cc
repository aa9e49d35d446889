#include "daemon/plan_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using policy::Algorithm;
using policy::Pick;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr char kModel[] = R"(# as spccl-tune writes it
format = 1
made = "2026-11-28T12:00:00Z"
channels = 4

[picks]
a = "split"
b = "recursive-doubling/262144"

[quality.all_reduce]
accuracy = 0.95
held_out = 5

[plans.all_reduce.nodes-2.ranks-1]
65536 = "ab."
94208 = "aab"
131072 = "bbb"
)";

TEST(PlanModelFileTest, IsRead) {
  const auto model = ParsePlanModel(kModel, "model.toml");
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->channels, 4U);
  ASSERT_EQ(model->tables.size(), 1U);
  const policy::PlanTable& table = model->tables.at({.nodes = 2, .most_ranks = 1});
  const auto find = [&](uint64_t bytes, double density) {
    return policy::NameOf(table.Find(OpKind::kAllReduce, bytes, density));
  };
  EXPECT_EQ(find(65536, 1), "split");
  EXPECT_EQ(find(65536, 0.5), "recursive-doubling/262144");
  EXPECT_EQ(find(65536, 0.01), "auto");
  EXPECT_EQ(find(90'000, 0.5), "split");
  EXPECT_EQ(find(131072, 1), "recursive-doubling/262144");
}

TEST(PlanModelFileTest, DamageIsRefusedWithItsPlace) {
  const struct {
    const char *from, *to, *says;
  } kDamages[] = {
      {"format = 1", "format = 2", "model.toml:2:10: format: found the integer 2, expected 1"},
      {"format = 1\n", "", "expected format = 1"},
      {"channels = 4", "channels = 65", "model.toml:4:12: channels: found the integer 65"},
      {"channels = 4", "chanels = 4", "unknown name chanels"},
      {"\"split\"", "\"slip\"", "picks.a: found the string \"slip\", expected an algorithm"},
      {"\"split\"", "\"local\"", "expected an algorithm"},
      {"\"split\"", "\"tree\"", "with plans for all_reduce"},
      {"/262144", "/12", "expected an algorithm"},
      {"a = \"split\"", "aa = \"split\"", "one letter"},
      {"\"aab\"", "\"aabb\"", "expected a string of 3 letters"},
      {"\"aab\"", "\"aaz\"", "letters of [picks]"},
      {"\"aab\"", "\"aa!\"", "letters of [picks]"},
      {"\"aab\"", "7", "expected a string of 3 letters"},
      {"94208 = \"aab\"\n", "", "expected the next half octave"},
      {"nodes-2", "nodes-1", "expected plans.OPERATION.nodes-N"},
      {"nodes-2", "hosts-2", "expected plans.OPERATION.nodes-N"},
      {"plans.all_reduce", "plans.all_reduse", "expected plans.OPERATION.nodes-N"},
      {"accuracy = 0.95", "accuracy = \"good\"", "expected a number"},
      {"made = \"", "made = ", "not TOML"},
  };
  for (const auto& damage : kDamages) {
    const std::string text = absl::StrReplaceAll(kModel, {{damage.from, damage.to}});
    ASSERT_NE(text, kModel) << damage.from;
    const absl::Status status = ParsePlanModel(text, "model.toml").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << damage.to;
    EXPECT_THAT(std::string(status.message()), HasSubstr(damage.says)) << damage.to;
    EXPECT_THAT(std::string(status.message()), HasSubstr("model.toml:"));
  }
  EXPECT_FALSE(ParsePlanModel("format = 1\n", "model.toml").ok());
  EXPECT_FALSE(ParsePlanModel("", "model.toml").ok());
}

// Whatever is cut off or changed, the reader says yes or no and nothing worse.
TEST(PlanModelFileTest, AnyDamageIsSurvived) {
  const std::string text = kModel;
  for (size_t size = 0; size < text.size(); ++size) {
    ParsePlanModel(text.substr(0, size), "cut").status().IgnoreError();
    std::string flipped = text;
    flipped[size] = static_cast<char>(flipped[size] ^ 0x11);
    ParsePlanModel(flipped, "flipped").status().IgnoreError();
  }
}

TEST(PlanModelsTest, WhatIsLoadedIsKeptAndUnloaded) {
  const testing::TempFolder folder;
  {
    auto models = PlanModels::Create(folder.path(), "");
    ASSERT_THAT(models, IsOk());
    EXPECT_EQ((*models)->Current(), nullptr);
    EXPECT_EQ((*models)->Describe().origin, "");
    ASSERT_THAT((*models)->Load("m.toml", kModel), IsOk());
    const auto first = (*models)->Current();
    ASSERT_NE(first, nullptr);
    EXPECT_THAT(std::string((*models)->Load("bad.toml", "format = 3").message()),
                HasSubstr("bad.toml:1:10"));
    EXPECT_EQ((*models)->Current(), first);  // what was in force stays
    EXPECT_EQ((*models)->Describe().name, "m.toml");
  }
  auto again = PlanModels::Create(folder.path(), "");
  ASSERT_THAT(again, IsOk());
  ASSERT_NE((*again)->Current(), nullptr);
  EXPECT_EQ((*again)->Describe().text, kModel);
  EXPECT_EQ((*again)->Describe().origin, "loaded");
  ASSERT_THAT((*again)->Unload(), IsOk());
  ASSERT_THAT((*again)->Unload(), IsOk());
  EXPECT_EQ((*again)->Current(), nullptr);
  again = PlanModels::Create(folder.path(), "");
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ((*again)->Current(), nullptr);
}

TEST(PlanModelsTest, TheConfigurationsIsInForceUntilAnotherIsLoaded) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/configured.toml";
  std::ofstream(path) << kModel;
  auto models = PlanModels::Create(folder.path(), path);
  ASSERT_THAT(models, IsOk());
  EXPECT_EQ((*models)->Describe().origin, "configuration");
  const auto configured = (*models)->Current();
  ASSERT_THAT((*models)->Load("other", kModel), IsOk());
  EXPECT_EQ((*models)->Describe().origin, "loaded");
  ASSERT_THAT((*models)->Unload(), IsOk());
  EXPECT_EQ((*models)->Current(), configured);
  EXPECT_FALSE(PlanModels::Create(folder.path(), folder.path() + "/absent.toml").ok());
  std::ofstream(path) << "format = 9\n";
  EXPECT_THAT(std::string(PlanModels::Create(folder.path(), path).status().message()),
              HasSubstr("configured.toml:1:10"));
}

}  // namespace
}  // namespace spccl::daemon
