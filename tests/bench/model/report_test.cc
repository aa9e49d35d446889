#include "bench/model/report.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::bench::model {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

ParsedOptions Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "spccl-model");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data());
}

std::vector<nlohmann::json> Lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(OptionsTest, DefaultsAreFourTo2048Gpus) {
  const ParsedOptions parsed = Parse({});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  EXPECT_EQ(parsed.options.gpus.front(), 4U);
  EXPECT_EQ(parsed.options.gpus.back(), 2048U);
  EXPECT_EQ(parsed.options.gpus.size(), 10U);
  EXPECT_EQ(parsed.options.ops.size(), 3U);
  EXPECT_TRUE(parsed.options.changed.empty());
}

TEST(OptionsTest, FlagsChangeThePreset) {
  const ParsedOptions parsed = Parse({"--preset", "dgx-h100", "--node-rate", "50", "--overlap=0.5",
                                      "--gpus-per-node=2", "--not-fused", "--inter-alpha", "7"});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  const System& system = parsed.options.system;
  EXPECT_DOUBLE_EQ(system.node_rate, 50e9);
  EXPECT_DOUBLE_EQ(system.inter_alpha, 7e-6);
  EXPECT_DOUBLE_EQ(system.overlap, 0.5);
  EXPECT_EQ(system.gpus_per_node, 2U);
  EXPECT_FALSE(system.fused);
  EXPECT_DOUBLE_EQ(system.intra_rate, FindPreset("dgx-h100")->system.intra_rate);
  EXPECT_EQ(parsed.options.changed.size(), 5U);
}

TEST(OptionsTest, TakesAFileOfFlags) {
  const std::string path = testing::TempDir() + "model_options_test.toml";
  std::ofstream(path) << "preset = \"dgx-h100\"\nmemory-rate = 1000\ngpus = [8, 64]\n";
  const ParsedOptions parsed = Parse({"--config", path.c_str()});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  EXPECT_DOUBLE_EQ(parsed.options.system.kernels.memory_rate, 1000e9);
  EXPECT_EQ(parsed.options.gpus, (std::vector<uint32_t>{8, 64}));
  EXPECT_TRUE(parsed.options.system.fused);
}

TEST(OptionsTest, RefusesAFileWithAFlagThatItDoesNotKnow) {
  const std::string path = testing::TempDir() + "model_unknown_flag_test.toml";
  std::ofstream(path) << "memory-rate = 1000\nnode-rat = 100\n";
  const ParsedOptions parsed = Parse({"--config", path.c_str()});
  EXPECT_FALSE(parsed.go_on);
  EXPECT_EQ(parsed.exit_code, 1);
  EXPECT_THAT(parsed.text, HasSubstr("--config " + path +
                                     ": node-rat is none of the flags that a file may have\n"));
}

TEST(OptionsTest, SourcesAreThoseOfAPresetAsItIs) {
  ASSERT_TRUE(Parse({"--sources", "--preset", "dgx-h100", "--json"}).go_on);
  for (const std::vector<const char*>& changed :
       std::vector<std::vector<const char*>>{{"--sources", "--node-rate", "50"},
                                             {"--sources", "--gpus-per-node", "2"},
                                             {"--sources", "--fused"}}) {
    const ParsedOptions parsed = Parse(changed);
    EXPECT_FALSE(parsed.go_on) << changed[1];
    EXPECT_EQ(parsed.exit_code, 1);
    EXPECT_THAT(parsed.text, HasSubstr("--sources: of a preset as it is, not with "));
    EXPECT_THAT(parsed.text, HasSubstr(changed[1] + 2));
  }
}

TEST(OptionsTest, WrongUseIsRefused) {
  for (const std::vector<const char*>& arguments : std::vector<std::vector<const char*>>{
           {"--preset", "none"},
           {"--node-rate", "0"},
           {"--node-rate", "nan"},
           {"--overlap", "1.1"},
           {"--sparsity", "2"},
           {"--sizes", "many"},
           {"--gpus", "6"},
           {"--gpus-per-node", "3"},
           {"--op", "broadcast"},
           {"--algo", "tree"},
           {"--paper", "--sources"},
           {"--measured", "/nowhere"},
       }) {
    const ParsedOptions parsed = Parse(arguments);
    EXPECT_FALSE(parsed.go_on) << arguments.front();
    EXPECT_EQ(parsed.exit_code, 1);
    EXPECT_THAT(parsed.text, HasSubstr("spccl-model: "));
  }
}

TEST(ReportTest, RowsHaveWhatTheyAreMadeOf) {
  const ParsedOptions parsed = Parse({"--json", "--op=all_reduce,all_gather", "--gpus=8,16",
                                      "--sizes=1G", "--algo", "ring,recursive-doubling,best"});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  const auto lines = Lines(TableText(parsed.options, MakeRows(parsed.options)));
  ASSERT_EQ(lines.size(), 6U + 4U);  // an all-gather has no recursive doubling
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(line["tool"], "spccl-model");
    EXPECT_DOUBLE_EQ(line["speedup"],
                     line["dense_us"].get<double>() / line["sparse_us"].get<double>());
    EXPECT_LE(line["sparse_us"].get<double>(), line["link_us"].get<double>() +
                                                   line["kernel_us"].get<double>() +
                                                   line["round_us"].get<double>() + 1e-6);
    EXPECT_GT(line["speedup"].get<double>(), 1);
  }
}

TEST(ReportTest, TextSaysThatNothingWasMeasured) {
  ParsedOptions parsed = Parse({"--gpus=8", "--node-rate=50"});
  const std::string table = TableText(parsed.options, MakeRows(parsed.options));
  EXPECT_THAT(table, HasSubstr("projected, not measured"));
  EXPECT_THAT(table, HasSubstr("perlmutter with node-rate 50"));
  EXPECT_THAT(SourcesText(parsed.options), HasSubstr("SpCCL IV-C"));
}

TEST(ReportTest, TargetsAreThoseOfTheDocument) {
  const std::string text = SourcesText(Parse({"--sources", "--preset", "dgx-h100"}).options);
  EXPECT_THAT(text, ContainsRegex("encode-share, decode-share +0.80 +target +docs/performance.md"));
}

TEST(ReportTest, ClaimsAreInBothForms) {
  ParsedOptions parsed = Parse({"--paper"});
  EXPECT_THAT(PaperText(parsed.options), HasSubstr("5.25"));
  parsed.options.json = true;
  const auto lines = Lines(PaperText(parsed.options));
  ASSERT_EQ(lines.size(), Claims().size());
  EXPECT_EQ(lines[0]["reported_high"], 5.25);
  EXPECT_EQ(lines[0]["agrees"], "yes");
}

}  // namespace
}  // namespace spccl::bench::model
