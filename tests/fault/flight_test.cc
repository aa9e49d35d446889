// What the flight recorder tells of a job that hangs or has failed on one node.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/fault/tool.h"
#include "tests/support/trace_check.h"

namespace spccl::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kLate = 2;

std::string NameOf(FaultJob& job, int rank) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(job.processes().pid(rank)) +
         ")";
}

// One operation together; then all but kLate post the next, and it does so once it is continued.
int StopBeforeTheSecond(RankContext& context) {
  std::vector<float> send(1000, 1.0f), recv(1000);
  if (AllReduce(context, send, &recv) != spcclSuccess) return 1;
  if (context.rank == kLate) ::raise(SIGSTOP);
  return AllReduce(context, send, &recv) == spcclSuccess ? 0 : 1;
}

// The second operation is never posted by kLate.
int NeverPostTheSecond(RankContext& context) {
  std::vector<float> send(1000, 1.0f), recv(1000);
  if (AllReduce(context, send, &recv) != spcclSuccess) return 1;
  context.report("ready;");
  if (context.rank == kLate) {
    AwaitStop(context.stop);
    return 0;
  }
  ReportResult(context, AllReduce(context, send, &recv));
  return 0;
}

// The others' posts come one after the other.
bool BlamesOnly(const ToolEnd& end, int rank) {
  const nlohmann::json json = end.json();
  return json.is_object() && json.value("phase", "") == "not-posted" &&
         json["late_ranks"] == nlohmann::json::array({rank});
}

// The record that is kept in the daemon's state folder, once it is there.
std::string AwaitRecord(const SpawnedDaemon& daemon) {
  const std::string folder = daemon.runtime_dir() + "/state/flight";
  const int64_t deadline_ns = MonotonicNanos() + int64_t{kPatienceMs} * 1'000'000;
  while (MonotonicNanos() < deadline_ns) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".spcclflight") return entry.path();
    }
    ::poll(nullptr, 0, 5);  // nothing tells of another process's file
  }
  return "";
}

TEST(FlightTest, ARankThatIsStoppedBeforeItPostsIsNamed) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 3, StopBeforeTheSecond);
  const ToolEnd json = AskUntil(*daemon, "explain -o json --wait 20ms", [](const ToolEnd& end) {
    return BlamesOnly(end, kLate) && end.output.find("stopped") != std::string::npos;
  });
  EXPECT_EQ(json.code, 0) << json.output;
  const ToolEnd text = RunTool(*daemon, "explain --wait 50ms");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("operation 1 (all_reduce count=1000 float32 sum) waits for " +
                              NameOf(job, kLate) + ", which has not posted it"),
                    HasSubstr("its process is stopped, by SIGSTOP"),
                    HasSubstr("ranks 0 and 1 have posted it"), HasSubstr("still the same")));
  EXPECT_FALSE(RunTool(*daemon, "explain -o json --wait 10ms").json()["moving"].get<bool>());
  job.processes().Kill(kLate, SIGCONT);
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

TEST(FlightTest, AJobThatGoesOnMoves) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 2, KeepSumming);
  ASSERT_TRUE(job.processes().AwaitReport(0, "summing;", kPatienceMs));
  const ToolEnd end = AskUntil(*daemon, "explain -o json --wait 100ms", [](const ToolEnd& end) {
    const nlohmann::json json = end.json();
    return json.is_object() && json.value("moving", false);
  });
  EXPECT_THAT(end.output, HasSubstr("it moves"));
  const ToolEnd trace = RunTool(*daemon, "trace");
  EXPECT_EQ(FaultOfTrace(trace.json()), "");
  EXPECT_THAT(trace.output, AllOf(HasSubstr("all_reduce #"), HasSubstr("\"channel")));
  EXPECT_THAT(RunTool(*daemon, "trace --summary").output,
              AllOf(HasSubstr("all_reduce count=50000 float32 sum"), HasSubstr("LAST OF ALL")));
  job.Stop();
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

TEST(FlightTest, AKilledRankLeavesARecord) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 3, NeverPostTheSecond);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "ready;", kPatienceMs));
  }
  const std::string killed = NameOf(job, kLate);
  job.processes().Kill(kLate, SIGKILL);
  job.processes().Wait(kPatienceMs);
  const std::string path = AwaitRecord(*daemon);
  ASSERT_NE(path, "") << daemon->ReadLog();
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_EQ(info.st_uid, ::geteuid());

  const std::string trace_path = daemon->runtime_dir() + "/trace.json";
  const ToolEnd written = RunTool(*daemon, "trace --file " + path + " --out " + trace_path);
  EXPECT_EQ(written.code, 0) << written.output;
  const ToolEnd trace = RunTool(*daemon, "trace --file " + path);
  EXPECT_EQ(FaultOfTrace(trace.json()), "");
  EXPECT_THAT(trace.output, AllOf(HasSubstr("all_reduce #0"), HasSubstr("failed: " + killed)));
  EXPECT_EQ(std::filesystem::file_size(trace_path) + 1, trace.output.size());
  EXPECT_THAT(RunTool(*daemon, "trace --summary --file " + path).output,
              HasSubstr("kept because: " + killed));
  // The same by the daemon, after the communicator is gone.
  EXPECT_THAT(RunTool(*daemon, "trace 1 --summary").output, HasSubstr("kept because: " + killed));
  EXPECT_EQ(RunTool(*daemon, "trace 2").code, 5);
}

TEST(FlightTest, APassedDeadlineLeavesARecordThatSaysWhoWasLate) {
  const auto daemon = StartServing({"--op-timeout=300ms"});
  FaultJob job(*daemon, 3, NeverPostTheSecond);
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "result", kPatienceMs));
  }
  const std::string path = AwaitRecord(*daemon);
  ASSERT_NE(path, "") << daemon->ReadLog();
  const std::string late = NameOf(job, kLate);
  EXPECT_THAT(RunTool(*daemon, "explain --file " + path).output,
              AllOf(HasSubstr(late + ", which has not posted it"),
                    HasSubstr("so it was when it failed: waiting for " + late)));
  // While the communicator is there as after it: what was kept says more.
  EXPECT_THAT(RunTool(*daemon, "explain 1").output, HasSubstr("which has not posted it"));
  job.Stop();
  job.processes().Wait(kPatienceMs);
}

}  // namespace
}  // namespace spccl::testing
