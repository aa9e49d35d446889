#include "bench/perf/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spccl::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Summarize, TakesTheMiddle) {
  const Summary odd = Summarize({5, 1, 3});
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.p50, 3);
  EXPECT_EQ(odd.mean, 3);
  EXPECT_EQ(Summarize({4, 1, 2, 9}).p50, 3);
  EXPECT_EQ(Summarize({8}).p50, 8);
}

TEST(Summarize, FindsTheSlowestInAHundred) {
  std::vector<double> values;
  for (int i = 200; i > 0; --i) values.push_back(i);
  EXPECT_EQ(Summarize(values).p99, 198);
  EXPECT_EQ(Summarize({8}).p99, 8);
  EXPECT_EQ(Summarize({5, 1}).p99, 5);
}

Measurement Example() {
  Measurement measured;
  measured.times_us = {2000, 1000, 3000};
  measured.wrong = 3;
  measured.wire_bytes = 100;
  measured.dense_bytes = 400;
  measured.sends_by_format[static_cast<int>(Format::kPici)] = 6;
  measured.decisions = {
      {"reduce_scatter/first", 2}, {"reduce_scatter/known-above", 1}, {"all_gather/forwarded", 3}};
  measured.spent_us = {{"encode", 12.5}};
  return measured;
}

TEST(JsonLine, HasEveryKeyThatScriptsRead) {
  Options options;
  options.check = true;
  options.algo = "ring";
  options.sparsity = 0.9;
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 4, 1'000'000).value();
  const std::string text = JsonLine("spccl-perf", problem, options, nullptr, Example());
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line.at("op"), "all_reduce");
  EXPECT_EQ(line.at("dtype"), "float32");
  EXPECT_EQ(line.at("redop"), "sum");
  EXPECT_EQ(line.at("algo"), "ring");
  EXPECT_EQ(line.at("codec"), "auto");
  EXPECT_EQ(line.at("ranks"), 4);
  EXPECT_EQ(line.at("nodes"), 1);
  EXPECT_EQ(line.at("bytes"), 1'000'000);
  EXPECT_EQ(line.at("sparsity"), 0.9);
  EXPECT_EQ(line.at("time_us_min"), 1000);
  EXPECT_EQ(line.at("time_us_p50"), 2000);
  EXPECT_EQ(line.at("time_us_mean"), 2000);
  EXPECT_EQ(line.at("time_us_p99"), 3000);
  EXPECT_DOUBLE_EQ(line.at("algbw_gbps"), 0.5);
  EXPECT_DOUBLE_EQ(line.at("busbw_gbps"), 0.75);
  EXPECT_EQ(line.at("wire_bytes"), 100);
  EXPECT_EQ(line.at("dense_bytes"), 400);
  EXPECT_EQ(line.at("sends").at("pici"), 6);
  EXPECT_EQ(line.at("sends_by_phase").at("reduce_scatter"), 3);
  EXPECT_EQ(line.at("sends_by_phase").at("all_gather"), 3);
  EXPECT_EQ(line.at("decisions").at("reduce_scatter/known-above"), 1);
  EXPECT_EQ(line.at("spent_us").at("encode"), 12.5);
  EXPECT_EQ(line.at("wrong"), 3);
  EXPECT_EQ(line.at("device"), "host");
  EXPECT_TRUE(line.at("device_name").is_null());
  EXPECT_TRUE(line.at("memory").is_null());
  EXPECT_EQ(line.at("captured"), false);
}

TEST(JsonLine, NamesTheDevice) {
  Options options;
  options.device = "cuda";
  options.captured = true;
  Measurement measured = Example();
  measured.device_name = "A GPU";
  measured.memory = {.handed_over = true, .text = "handed over (cuda-ipc)"};
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 4, 1'000'000).value();
  const auto line =
      nlohmann::json::parse(JsonLine("spccl-perf", problem, options, nullptr, measured));
  EXPECT_EQ(line.at("device"), "cuda");
  EXPECT_EQ(line.at("device_name"), "A GPU");
  EXPECT_EQ(line.at("memory"), "handed over (cuda-ipc)");
  EXPECT_EQ(line.at("captured"), true);
  EXPECT_THAT(TableHead("spccl-perf", options), HasSubstr(", device cuda, captured,"));
}

TEST(JsonLine, SaysNothingOfWhatWasNotChecked) {
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 2, 64).value();
  const auto line =
      nlohmann::json::parse(JsonLine("spccl-perf", problem, Options(), nullptr, Example()));
  EXPECT_TRUE(line.at("wrong").is_null());
}

TEST(JsonLine, TellsTheSettingAndWhatWasForecast) {
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 2, 64).value();
  Measurement measured = Example();
  measured.last_sends = {{.step = 1,
                          .phase = "all_gather",
                          .link = "inter",
                          .formats = {{"gap", 3}},
                          .runners_up = {{"coo", 3}},
                          .chosen_ns = 5000,
                          .runner_up_ns = 7000,
                          .predicted_encode_ns = 1000,
                          .encode_ns = 1500,
                          .predicted_wire_ns = 4000,
                          .wire_ns = 4500}};
  const Setting setting{.name = "codec=gap,threshold=auto", .codec = "gap"};
  Options options;
  options.clustered = true;
  const auto line =
      nlohmann::json::parse(JsonLine("spccl-perf", problem, options, &setting, measured));
  EXPECT_EQ(line.at("setting"), "codec=gap,threshold=auto");
  EXPECT_EQ(line.at("positions"), "clustered");
  const auto step = line.at("send_steps").at(0);
  EXPECT_EQ(step.at("formats").at("gap"), 3);
  EXPECT_EQ(step.at("runners_up").at("coo"), 3);
  EXPECT_EQ(step.at("forecast_us"), 5);
  EXPECT_EQ(step.at("forecast_runner_up_us"), 7);
  EXPECT_EQ(step.at("forecast_encode_us"), 1);
  EXPECT_EQ(step.at("encode_us"), 1.5);
  EXPECT_EQ(step.at("forecast_wire_us"), 4);
  EXPECT_EQ(step.at("wire_us"), 4.5);
  EXPECT_THAT(TableRow(problem, options, &setting, measured), HasSubstr(setting.name));
}

TEST(TableRow, ShowsRatioAndFormats) {
  Options options;
  options.check = true;
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 4, 1'000'000).value();
  const std::string row = TableRow(problem, options, nullptr, Example());
  EXPECT_THAT(row, HasSubstr("0.2500"));
  EXPECT_THAT(row, HasSubstr("pici:6"));
  EXPECT_THAT(row, HasSubstr("reduce_scatter:3"));
  EXPECT_THAT(row, HasSubstr("encode:12us"));
  EXPECT_THAT(row, HasSubstr("2000.00"));
}

TEST(TableRow, TellsWhatRanWhereThatWasNotAskedFor) {
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 2, 1'000'000).value();
  Options options;
  Measurement measured = Example();
  const auto row = [&](const Setting* setting = nullptr) {
    return TableRow(problem, options, setting, measured);
  };
  measured.ran = "local";
  EXPECT_THAT(row(), Not(HasSubstr("ran ")));  // what auto is, on one node
  options.algo = "split";
  EXPECT_THAT(row(), HasSubstr("  ran local"));
  measured.ran = "split";
  EXPECT_THAT(row(), Not(HasSubstr("ran ")));
  const Setting tree{.name = "algo=tree", .algo = "tree"};
  EXPECT_THAT(row(&tree), HasSubstr("  ran split"));
  options.algo = "auto";
  options.nodes = 2;
  EXPECT_THAT(row(), HasSubstr("  ran split"));
  measured.ran = "";
  EXPECT_THAT(row(), Not(HasSubstr("ran ")));
}

}  // namespace
}  // namespace spccl::bench
