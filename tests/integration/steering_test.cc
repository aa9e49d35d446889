// An operator steers a job that runs: the real spcclctl, the real spccld, ranks with libspccl.
#include <stdio.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/fault/fault_job.h"

namespace spccl::testing {
namespace {

// The output of the spcclctl that was built beside this test.
std::string Tool(const SpawnedDaemon& daemon, const std::string& arguments) {
  const auto self = std::filesystem::canonical("/proc/self/exe");
  const std::string binary = self.parent_path().parent_path() / "bin" / "spcclctl";
  const std::string command =
      "'" + binary + "' --runtime-dir '" + daemon.runtime_dir() + "' " + arguments + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string output;
  char block[4096];
  for (size_t got; (got = ::fread(block, 1, sizeof block, pipe)) > 0;) output.append(block, got);
  EXPECT_EQ(::pclose(pipe), 0) << command << "\n" << output;
  return output;
}

nlohmann::json OnlyComm(const SpawnedDaemon& daemon) {
  const auto reply = nlohmann::json::parse(Tool(daemon, "comms -o json"));
  EXPECT_EQ(reply.at("comms").size(), 1u);
  return reply.at("comms").at(0);
}

uint64_t Count(const nlohmann::json& counts, const std::string& key) {
  return counts.is_object() ? counts.value(key, uint64_t{0}) : 0;
}

// Asks again while the job goes on, until `wanted` holds of its communicator.
template <typename Wanted>
bool Await(const SpawnedDaemon& daemon, Wanted wanted) {
  const int64_t deadline_ns = MonotonicNanos() + kPatienceMs * 1'000'000;
  while (MonotonicNanos() < deadline_ns) {
    if (wanted(OnlyComm(daemon))) return true;
  }
  ADD_FAILURE() << "it never came to that: " << OnlyComm(daemon).dump(1);
  return false;
}

// Three ranks that sum, all elements nonzero: sparsity 0, but for the first.
TEST(SteeringTest, AlgorithmCodecAndThresholdsChangeUnderARunningJob) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 3, KeepSumming);
  ASSERT_TRUE(job.processes().AwaitReport(0, "summing;", kPatienceMs));
  EXPECT_EQ(OnlyComm(*daemon).at("running_algorithm"), "local");
  EXPECT_EQ(OnlyComm(*daemon).at("counters").at("wire_bytes"), 0u);

  Tool(*daemon, "algo set ring --codec coo");
  // Full of nonzeros: compressed once to measure, found no smaller, then known to be below.
  ASSERT_TRUE(Await(*daemon, [](const nlohmann::json& comm) {
    const nlohmann::json& decisions = comm.at("counters").at("decisions");
    return comm.at("running_algorithm") == "ring" &&
           Count(decisions, "reduce_scatter/no-gain") + Count(decisions, "reduce_scatter/first") >
               0 &&
           Count(decisions, "reduce_scatter/known-below") > 0;
  }));
  EXPECT_EQ(Count(OnlyComm(*daemon).at("counters").at("decisions"), "reduce_scatter/known-above"),
            0u);

  // Which of the sends decided what, and that it did otherwise than before.
  const nlohmann::json sends = OnlyComm(*daemon).at("last_sends");
  EXPECT_EQ(sends.at("operation"), "all_reduce");
  EXPECT_EQ(sends.at("algorithm"), "ring");
  ASSERT_EQ(sends.at("steps").size(), 4u);  // 2 (ranks - 1)
  EXPECT_EQ(sends.at("steps").at(0).at("phase"), "reduce_scatter");
  EXPECT_EQ(sends.at("steps").at(0).at("link"), "intra");
  EXPECT_EQ(sends.at("steps").at(3).at("phase"), "all_gather");
  EXPECT_GT(sends.at("steps").at(3).at("decisions").size(), 0u);
  EXPECT_GT(OnlyComm(*daemon).at("counters").at("encode_ns"), 0u);
  EXPECT_THAT(Tool(*daemon, "events"), ::testing::HasSubstr("all_reduce by ring: send 0"));
  EXPECT_THAT(
      Tool(*daemon, "comms --sends"),
      ::testing::AllOf(::testing::HasSubstr("THRESHOLD"), ::testing::HasSubstr("reduce_scatter")));

  Tool(*daemon, "algo set ring --codec dense");
  ASSERT_TRUE(Await(*daemon, [](const nlohmann::json& comm) {
    return Count(comm.at("counters").at("decisions"), "all_gather/codec-dense") > 0;
  }));

  Tool(*daemon, "algo set local");
  ASSERT_TRUE(Await(
      *daemon, [](const nlohmann::json& comm) { return comm.at("running_algorithm") == "local"; }));
  job.Stop();
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

// One element in fifty is nonzero, until rank 0 is told to stop.
int KeepSummingSparse(RankContext& context) {
  std::vector<float> send(200'000), recv(send.size());
  for (size_t i = 1; i < send.size(); i += 50) send[i] = 1;
  for (bool told = false; recv[0] == 0; told = true) {
    send[0] = context.rank == 0 && context.stop.load() != 0 ? 1.0f : 0.0f;
    if (AllReduce(context, send, &recv) != spcclSuccess) return 1;
    if (recv[1] != 2 || recv[2] != 0) return 1;
    if (!told) context.report("summing;");
  }
  return spcclCommDestroy(context.comm) == spcclSuccess ? 0 : 1;
}

// Sizes around the 800,000 bytes that KeepSummingSparse sums, at all densities.
std::string ModelOf(const std::string& algorithm) {
  return "format = 1\n[picks]\na = \"" + algorithm +
         "\"\n[plans.all_reduce.nodes-2.ranks-1]\n524288 = \"a\"\n753664 = \"a\"\n"
         "1048576 = \"a\"\n";
}

TEST(SteeringTest, AModelThatTheLeaderLoadsDecidesOnAllNodes) {
  const auto a = StartServing({"--peers-listen=127.0.0.1:0"});
  const auto b = StartServing({"--peers-listen=127.0.0.1:0"});
  FaultJob job({a.get(), b.get()}, KeepSummingSparse);
  ASSERT_TRUE(job.processes().AwaitReport(0, "summing;", kPatienceMs));
  const auto runs = [](const std::string& algorithm, const std::string& chooser) {
    return [=](const nlohmann::json& comm) {
      return comm.at("running_algorithm") == algorithm && comm.at("running_chooser") == chooser;
    };
  };
  const std::string predicted = OnlyComm(*a).at("running_algorithm");
  ASSERT_TRUE(Await(*a, runs(predicted, "cost model")));
  EXPECT_THAT(Tool(*a, "tune show"), ::testing::HasSubstr("no model"));

  const std::string learned = predicted == "split" ? "halving-doubling" : "split";
  const std::string path = a->runtime_dir() + "/model.toml";
  // As large as those of many nodes.
  std::ofstream(path) << ModelOf(learned) << "# " << std::string(500'000, '.') << "\n";
  Tool(*a, "tune load " + path);
  ASSERT_TRUE(Await(*a, runs(learned, "model")));
  ASSERT_TRUE(Await(*b, runs(learned, "model")));  // it has loaded nothing
  EXPECT_THAT(Tool(*b, "tune show"), ::testing::HasSubstr("no model"));
  EXPECT_THAT(Tool(*a, "tune show"), ::testing::HasSubstr("a = \"" + learned + "\""));
  EXPECT_THAT(Tool(*a, "comms"), ::testing::HasSubstr("CHOSEN BY"));

  Tool(*a, "algo set two-level-ring --slice-bytes 65536");
  ASSERT_TRUE(Await(*a, runs("two-level-ring", "fixed")));
  EXPECT_EQ(OnlyComm(*a).at("settings").at("slice_bytes"), 65536);
  Tool(*a, "algo reset");
  ASSERT_TRUE(Await(*a, runs(learned, "model")));
  EXPECT_EQ(OnlyComm(*a).at("settings").at("slice_bytes"), 0);
  Tool(*a, "tune unload");
  ASSERT_TRUE(Await(*b, runs(predicted, "cost model")));
  job.Stop();
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

TEST(SteeringTest, BetweenNodesEachSendTellsWhatWasForecastAndWhatItTook) {
  const auto a = StartServing({"--peers-listen=127.0.0.1:0"});
  const auto b = StartServing({"--peers-listen=127.0.0.1:0"});
  FaultJob job({a.get(), b.get()}, KeepSummingSparse);
  ASSERT_TRUE(job.processes().AwaitReport(0, "summing;", kPatienceMs));
  for (const std::string setting : {"paper", "auto"}) {
    Tool(*a, "threshold set " + setting);
    // With codec auto too, the ways to send would be on trial, some of which forecast nothing.
    if (setting == "auto") Tool(*a, "codec set pici");
    // The first decides by itself: the paper's always compresses it, auto may find dense faster.
    ASSERT_TRUE(Await(*a, [&](const nlohmann::json& comm) {
      return comm.at("settings").at("pici").at("inter") == (setting == "auto" ? -1 : 0.5) &&
             comm.at("settings").at("codec") == (setting == "auto" ? "pici" : "auto") &&
             !comm.at("last_sends").is_null();
    }));
    const nlohmann::json step = OnlyComm(*a).at("last_sends").at("steps").at(0);
    EXPECT_EQ(step.at("link"), "inter");
    uint64_t decided = 0, went = 0, next = 0;
    for (const auto& count : step.at("decisions")) decided += count.get<uint64_t>();
    for (const auto& count : step.at("formats")) went += count.get<uint64_t>();
    for (const auto& count : step.at("runners_up")) next += count.get<uint64_t>();
    EXPECT_GT(decided, 0u);
    EXPECT_EQ(went, decided);
    EXPECT_EQ(next, decided);
    const nlohmann::json& forecast = step.at("forecast");
    EXPECT_EQ(forecast.at("sends"), decided);
    EXPECT_GT(forecast.at("encode_ns"), 0u);
    EXPECT_GT(forecast.at("wire_ns"), 0u);
    EXPECT_GE(forecast.at("chosen_ns"), forecast.at("wire_ns"));
    EXPECT_GT(step.at("encode_ns"), 0u);
    EXPECT_GT(step.at("wire_ns"), 0u);
  }
  EXPECT_THAT(Tool(*a, "comms --sends"), ::testing::HasSubstr("ENCODE FORECAST/TAKEN"));
  EXPECT_THAT(Tool(*a, "events"), ::testing::HasSubstr(" forecast"));
  EXPECT_THAT(Tool(*a, "threshold get"), ::testing::HasSubstr("auto *"));
  job.Stop();
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

TEST(SteeringTest, TheWayThatWasFastestForTheLeaderIsTakenOnAllNodes) {
  const auto a = StartServing({"--peers-listen=127.0.0.1:0"});
  const auto b = StartServing({"--peers-listen=127.0.0.1:0"});
  for (const auto* daemon : {&a, &b}) Tool(**daemon, "threshold set auto");
  FaultJob job({a.get(), b.get()}, KeepSummingSparse);
  ASSERT_TRUE(job.processes().AwaitReport(0, "summing;", kPatienceMs));
  ASSERT_TRUE(Await(*b, [&](const nlohmann::json&) {
    return Tool(*b, "events").find("which was fastest on rank 0's node") != std::string::npos;
  }));
  EXPECT_THAT(Tool(*b, "events"), ::testing::HasSubstr(" sends all_reduce by "));
  EXPECT_THAT(Tool(*a, "events"), ::testing::HasSubstr(" sends all_reduce by "));
  job.Stop();
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

TEST(SteeringTest, AbortEndsAJobWithTheOperatorsWords) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 2, [](RankContext& context) {
    std::vector<float> values(1000, 1.0f);
    for (;;) {
      const spcclResult_t result = AllReduce(context, values, &values);
      if (result == spcclSuccess) {
        context.report("up;");
        continue;
      }
      ReportResult(context, result);
      return 0;
    }
  });
  ASSERT_TRUE(job.processes().AwaitReport(0, "up;", kPatienceMs));
  const std::string id = OnlyComm(*daemon).at("id").dump();
  Tool(*daemon, "abort " + id + " --reason 'maintenance at noon'");
  for (const ProcessEnd& end : job.processes().Wait(kPatienceMs)) {
    const Told told = ParseResult(end.output);
    EXPECT_EQ(told.result, spcclRemoteError);
    EXPECT_NE(told.text.find("maintenance at noon"), std::string::npos) << told.text;
  }
}

}  // namespace
}  // namespace spccl::testing
