#include "bench/tune/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::tune {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;

Sample Of(uint64_t bytes, const std::string& way, double time_us) {
  return {
      .at = {.op = OpKind::kAllGather, .nodes = 2, .ranks = 4, .bytes = bytes, .sparsity = 0.999},
      .way = way,
      .ran = "split",
      .iters = 3,
      .time_us = time_us};
}

TEST(SamplesTest, AreReadBackAndGrow) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/points.csv";
  EXPECT_EQ(ReadSamples(path)->size(), 0u);
  ASSERT_THAT(AppendSamples(path, {Of(1, "split", 2.5)}), IsOk());
  ASSERT_THAT(AppendSamples(path, {Of(2, "auto", 3.25), Of(2, "split/65536", 4)}), IsOk());
  const auto samples = ReadSamples(path);
  ASSERT_THAT(samples, IsOk());
  ASSERT_EQ(samples->size(), 3u);
  EXPECT_EQ((*samples)[0].at, Of(1, "", 0).at);
  EXPECT_EQ((*samples)[1].time_us, 3.25);
  EXPECT_EQ((*samples)[2].way, "split/65536");
}

TEST(SamplesTest, AHalfLineIsCutOffAndAWrongOneNamed) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/points.csv";
  ASSERT_THAT(AppendSamples(path, {Of(1, "split", 2.5)}), IsOk());
  std::ofstream(path, std::ios::app) << "all_gather,2,4,1,0.9";
  EXPECT_EQ(ReadSamples(path)->size(), 1u);
  ASSERT_THAT(AppendSamples(path, {Of(2, "split", 2.5)}), IsOk());
  EXPECT_EQ(ReadSamples(path)->size(), 2u);
  for (const char* wrong :
       {"nonsense", "all_gather,2,4,1,1.5,0,split,split,3,2", "",
        "all_gather,2,1,1,0.5,0,split,split,3,2", "all_gather,2,4,1,0.5,0,split,split,3,0",
        "all_gather,2,4,1,0.5,0,split,split,3,1e999", "all_gather,2,4,1,0.5,0,bogus,split,3,2",
        "all_gather,2,4,1,0.5,0,split/x,split,3,2", "all_gather,2,4,1,0.5,0,split,bogus,3,2"}) {
    std::ofstream(path) << wrong << "\n";
    if (*wrong == 0) continue;  // an empty line says nothing
    EXPECT_THAT(std::string(ReadSamples(path).status().message()), HasSubstr("points.csv:1: found"))
        << wrong;
  }
}

TEST(SamplesTest, CasesHaveTheMedianOfTheirRounds) {
  std::vector<Sample> samples = {Of(1, "auto", 9),  Of(1, "auto", 4),  Of(1, "auto", 5),
                                 Of(1, "split", 1), Of(1, "split", 3), Of(1, "split", 7),
                                 Of(2, "split", 5), Of(3, "auto", 5)};
  samples.push_back(Of(1, "split", 100));
  samples.back().at.channels = 4;
  const std::vector<Measured> cases = Gather(samples, 0);
  ASSERT_EQ(cases.size(), 1u);  // of 2 bytes there is no "auto", of 3 nothing else
  EXPECT_EQ(cases[0].time_us.at("split"), 3);
  EXPECT_EQ(cases[0].auto_us, 5);
  EXPECT_EQ(cases[0].time_us.count("auto"), 0u);
}

}  // namespace
}  // namespace spccl::tune
