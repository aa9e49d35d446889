#include "bench/perf/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/support/check_number.h"

namespace spccl::bench {
namespace {

using ::testing::HasSubstr;

ParsedOptions Parse(std::vector<const char*> arguments) {
  const Tool tool = {.name = "a-perf",
                     .summary = "Measures.",
                     .algorithms = {"auto", "local", "ring"},
                     .codecs = {"auto", "dense", "pici", "coo"},
                     .buffers = {"alloc", "malloc", "register"},
                     .uses_daemon = true};
  arguments.insert(arguments.begin(), "a-perf");
  return ParseOptions(tool, static_cast<int>(arguments.size()), arguments.data());
}

TEST(ParseOptions, ReadsTheWholeLine) {
  const ParsedOptions parsed = Parse({"--op",          "reduce_scatter",
                                      "--ranks",       "4",
                                      "--sizes",       "16M,64M",
                                      "--dtype",       "bfloat16",
                                      "--redop",       "max",
                                      "--sparsity",    "0.99",
                                      "--algo",        "ring",
                                      "--codec",       "coo",
                                      "--iters",       "7",
                                      "--warmup",      "0",
                                      "--warmup-time", "1.5",
                                      "--check",       "--json",
                                      "--seed",        "9",
                                      "--buffers",     "register",
                                      "--in-place",    "--daemon-arg",
                                      "--channels=2"});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  const Options& options = parsed.options;
  EXPECT_EQ(options.op, Collective::kReduceScatter);
  EXPECT_EQ(options.dtype, DType::kBfloat16);
  EXPECT_EQ(options.redop, RedOp::kMax);
  EXPECT_EQ(options.ranks, 4u);
  EXPECT_EQ(options.sparsity, 0.99);
  EXPECT_EQ(options.algo, "ring");
  EXPECT_EQ(options.codec, "coo");
  EXPECT_EQ(options.iters, 7);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_EQ(options.warmup_seconds, 1.5);
  EXPECT_EQ(options.seed, 9u);
  EXPECT_EQ(options.buffers, "register");
  EXPECT_TRUE(options.check && options.json && options.in_place);
  EXPECT_EQ(options.daemon_arguments, std::vector<std::string>{"--channels=2"});
  ASSERT_EQ(options.problems.size(), 2u);
  EXPECT_EQ(options.problems[1].bytes, 64u << 20);
  EXPECT_EQ(options.problems[1].op.count, (64u << 20) / 2 / 4);
}

TEST(ParseOptions, ReadsTheDevice) {
  EXPECT_EQ(Parse({}).options.device, "host");
  const ParsedOptions parsed = Parse({"--device", "cuda:3", "--cuda-library", "libcuda.so.1"});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  EXPECT_EQ(parsed.options.device, "cuda:3");
  EXPECT_EQ(parsed.options.cuda_library, "libcuda.so.1");
  // A path, unlike a name, is looked for from here.
  EXPECT_EQ(Parse({"--device=cuda", "--cuda-library=a/b.so"}).options.cuda_library.front(), '/');
  EXPECT_THAT(Parse({"--device", "tpu"}).text, HasSubstr("expected host, cuda or cuda:N"));
  EXPECT_THAT(Parse({"--device=cuda", "--buffers=malloc"}).text, HasSubstr("--buffers malloc"));
  EXPECT_TRUE(Parse({"--device=cuda", "--buffers=register"}).go_on);
  EXPECT_FALSE(parsed.options.handed_over);
  EXPECT_TRUE(Parse({"--device=cuda", "--handed-over"}).options.handed_over);
  EXPECT_THAT(Parse({"--handed-over"}).text, HasSubstr("--handed-over: the host's memory"));
  EXPECT_FALSE(parsed.options.captured);
  EXPECT_TRUE(Parse({"--device=cuda:1", "--captured"}).options.captured);
  EXPECT_THAT(Parse({"--captured"}).text, HasSubstr("--captured: only streams of a GPU"));
}

TEST(ParseOptions, ReadsSettingsThatTakeTurns) {
  const ParsedOptions parsed = Parse({"--settings", "codec=coo,threshold=0.25", "--settings",
                                      "threshold=auto", "--positions", "clustered"});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  ASSERT_EQ(parsed.options.settings.size(), 2u);
  EXPECT_EQ(parsed.options.settings[0].name, "codec=coo,threshold=0.25");
  EXPECT_EQ(parsed.options.settings[0].codec, "coo");
  EXPECT_EQ(parsed.options.settings[0].threshold, 0.25);
  EXPECT_EQ(parsed.options.settings[1].codec, "auto");
  EXPECT_EQ(parsed.options.settings[1].threshold, -1);
  EXPECT_TRUE(parsed.options.clustered);
  for (const char* wrong : {"codec=zip", "threshold=2", "threshold=", "threshold=nan", "speed=1"}) {
    EXPECT_EQ(Parse({"--settings", wrong}).exit_code, 1) << wrong;
  }
  EXPECT_EQ(Parse({"--positions", "left"}).exit_code, 1);
  // What a setting does not name it leaves alone.
  const auto plans = Parse({"--settings", "algo=ring,slice=65536", "--settings", "codec=pici"});
  ASSERT_TRUE(plans.go_on) << plans.text;
  EXPECT_EQ(plans.options.settings[0].algo, "ring");
  EXPECT_EQ(plans.options.settings[0].slice_bytes, 65536u);
  EXPECT_EQ(plans.options.settings[0].codec, "");
  EXPECT_EQ(plans.options.settings[1].algo, "");
  EXPECT_EQ(Parse({"--settings", "algo=zigzag"}).exit_code, 1);
  EXPECT_EQ(Parse({"--settings", "slice=big"}).exit_code, 1);
}

TEST(ParseOptions, HasDefaults) {
  const ParsedOptions parsed = Parse({});
  ASSERT_TRUE(parsed.go_on);
  EXPECT_EQ(parsed.options.op, Collective::kAllReduce);
  EXPECT_EQ(parsed.options.buffers, "alloc");
  EXPECT_EQ(parsed.options.problems.size(), 1u);
}

TEST(ParseOptions, TakesARunningDaemonByFolderOrSocket) {
  EXPECT_EQ(Parse({"--runtime-dir", "/run/x"}).options.runtime_dir, "/run/x");
  EXPECT_EQ(Parse({"--socket", "/run/x/session.sock"}).options.runtime_dir, "/run/x");
  EXPECT_EQ(Parse({"--socket", "/"}).options.runtime_dir, "/");  // a folder
  EXPECT_EQ(Parse({"--socket", "/run/x/s"}).exit_code, 1);
  EXPECT_EQ(Parse({"--socket", "/run/x/session.sock", "--runtime-dir", "/run/x"}).exit_code, 1);
}

TEST(ParseOptions, RefusesMistakesWithOneAndSaysWhich) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> mistakes = {
      {{"--op", "all_to_all"}, "--op"},      {{"--dtype", "float8"}, "--dtype"},
      {{"--sparsity", "nan"}, "--sparsity"}, {{"--redop", "mean"}, "--redop"},
      {{"--ranks", "0"}, "--ranks"},         {{"--ranks", "65"}, "--ranks"},
      {{"--ranks", "two"}, "--ranks"},       {{"--sizes", "16Q"}, "--sizes"},
      {{"--seed", "-1"}, "--seed"},          {{"--seed", "18446744073709551616"}, "--seed"},
      {{"--sizes", "1"}, "--sizes"},         {{"--sparsity", "1.5"}, "--sparsity"},
      {{"--algo", "tree"}, "--algo"},        {{"--codec", "zip"}, "--codec"},
      {{"--iters", "0"}, "--iters"},         {{"--buffers", "gpu"}, "--buffers"},
      {{"--frobnicate"}, "--frobnicate"},    {{"extra"}, "extra"},
  };
  for (const auto& [arguments, name] : mistakes) {
    const ParsedOptions parsed = Parse(arguments);
    EXPECT_FALSE(parsed.go_on) << name;
    EXPECT_EQ(parsed.exit_code, 1) << name;
    EXPECT_THAT(parsed.text, HasSubstr(name));
  }
}

TEST(ParseOptions, SaysInWordsWhatANumberMustBe) {
  for (const std::string wrong : {"0", "-1", "nan", "inf", "1s", ""}) {
    const ParsedOptions parsed = Parse({"--warmup-time", wrong.c_str()});
    EXPECT_EQ(parsed.exit_code, 1) << wrong;
    EXPECT_THAT(parsed.text, HasSubstr("a-perf: --warmup-time: found \"" + wrong +
                                       "\", expected a number above 0\n"));
  }
  EXPECT_EQ(CheckNumber("1e-3", false), "");
  EXPECT_EQ(CheckNumber("0", true), "");
  EXPECT_EQ(CheckNumber("-1", true), "found \"-1\", expected a number from 0 on");
}

TEST(ParseOptions, HelpsWithZero) {
  const ParsedOptions parsed = Parse({"--help"});
  EXPECT_FALSE(parsed.go_on);
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_THAT(parsed.text, HasSubstr("--sparsity"));
  EXPECT_THAT(parsed.text, HasSubstr("beside this program, else of its prefix's sbin"));
}

TEST(ParseOptions, GivesPlacesToToolsWithoutDaemon) {
  const auto parse = [](bool places_ranks, std::vector<const char*> arguments) {
    const Tool tool = {.name = "peer-perf",
                       .summary = "Measures.",
                       .algorithms = {"auto"},
                       .codecs = {"auto"},
                       .buffers = {"malloc"},
                       .uses_daemon = false,
                       .places_ranks = places_ranks};
    arguments.insert(arguments.begin(), "peer-perf");
    return ParseOptions(tool, static_cast<int>(arguments.size()), arguments.data());
  };
  const ParsedOptions parsed = parse(
      true, {"--ranks", "4", "--nodes", "2", "--netns", "spccl-main-{}", "--interface", "eth0"});
  ASSERT_TRUE(parsed.go_on) << parsed.text;
  EXPECT_EQ(parsed.options.nodes, 2u);
  EXPECT_EQ(parsed.options.netns, "spccl-main-{}");
  EXPECT_EQ(parsed.options.interface, "eth0");
  EXPECT_EQ(parse(false, {"--ranks", "4", "--nodes", "2"}).options.nodes, 2u);
  EXPECT_EQ(parse(false, {"--netns", "spccl-main-{}"}).exit_code, 1);
}

}  // namespace
}  // namespace spccl::bench
