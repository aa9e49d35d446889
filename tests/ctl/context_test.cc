// Every command of the tool, against a control server with a core that the test makes up.
#include "ctl/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "daemon/control_server.h"
#include "tests/ctl/run_tool.h"
#include "tests/daemon/fake_control.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

using daemon::Snapshot;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ContextTest : public ::testing::Test {
 protected:
  ContextTest() {
    settings_ = *daemon::SettingsStore::Create(folder_, {});
    core_.Update([](Snapshot* snapshot) { *snapshot = daemon::SampleSnapshot({41, 42}); });
    server_ = *daemon::ControlServer::Create({.runtime_dir = folder_, .admin_group = ""}, &core_,
                                             settings_.get(), jobs_.get());
  }
  ~ContextTest() override { server_.reset(); }

  ToolRun Tool(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--runtime-dir", folder_, "--deadline", "20s"});
    return RunArgs(arguments);
  }
  // Checks that it succeeded and has the schema and the boot id.
  nlohmann::json Json(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const ToolRun run = Tool(std::move(arguments));
    EXPECT_EQ(run.code, kFine) << run.err;
    const nlohmann::json json = nlohmann::json::parse(run.out.substr(0, run.out.find('\n')));
    EXPECT_EQ(json["schema"], "spccl.v1");
    EXPECT_EQ(json["boot_id"], "0123456789abcdef");
    return json;
  }

  const spccl::testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  daemon::FakeControl core_;
  std::unique_ptr<daemon::SettingsStore> settings_;
  std::unique_ptr<daemon::JobTable> jobs_ = *daemon::JobTable::Create(folder_ + "/jobs");
  std::unique_ptr<daemon::ControlServer> server_;
};

TEST_F(ContextTest, WhatIsWrongIsNamed) {
  const std::pair<std::vector<std::string>, const char*> kMistakes[] = {
      {{"bogus"}, "unknown command or argument \"bogus\""},
      {{"threshold", "bogus"}, "unknown command or argument \"bogus\""},
      {{"status", "--bogus"}, "unknown option \"--bogus\""},
      {{"abort", "x"}, "COMM: found \"x\", expected a whole number from 0 on"},
      {{"abort", "99999999999999999999999"},
       "expected a whole number from 0 to 18446744073709551615"},
      {{"wait", "--ready", "--timeout", "0s"},
       "--timeout: found \"0s\", expected a duration above 0, up to 24h, with its unit"},
      {{"algo", "get", "--comm", "-1"}, "--comm: found \"-1\", expected a whole number"},
      {{"abort", "42", "--reason", "\xFF\xFE"}, "reason is not UTF-8"},
      {{"threshold", "set", "auto", "--job", "\xFF"}, "job_id is not UTF-8"},
      {{"abort", "42", "--reason", std::string(201, 'x')},
       "--reason: 201 bytes, at most 200 are taken"},
      {{"trace", "--summary", "--out", "/dev/null"}, "--out excludes --summary"},
      {{"job", "set", "job-41"}, "nothing to set: name --weight, --max-buffer-bytes"},
      {{"job", "set", "job-41", "--weight", "4294967297"},
       "--weight: found \"4294967297\", expected a whole number from 0 to 4294967295"},
      {{"job", "set", "job-41", "--max-buffer-bytes", "64GB"},
       "--max-buffer-bytes: found \"64GB\", expected a number of bytes: 65536, 64GiB"},
      {{"events", "--since", ""}, "--since: found \"\", expected a whole number"}};
  for (const auto& [arguments, message] : kMistakes) {
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.code, kWrongUse) << message;
    EXPECT_THAT(run.err, HasSubstr(message));
  }
}

TEST_F(ContextTest, SettingsOfAnUnknownJobAreSaidToWait) {
  EXPECT_THAT(Tool({"algo", "set", "ring", "--job", "nobody"}).out, HasSubstr("no such job"));
  EXPECT_THAT(Tool({"algo", "set", "ring", "--job", "job-41"}).out,
              AllOf(HasSubstr("for 1 communicator now"), Not(HasSubstr("no such job"))));
  for (const char* what : {"threshold", "algo", "codec"}) {
    const ToolRun none = Tool({what, "get", "--job", "nobody"});
    EXPECT_EQ(none.code, kFine);
    EXPECT_THAT(none.out, HasSubstr("no such job"));
    EXPECT_THAT(Tool({what, "get", "--job", "job-41"}).out, Not(HasSubstr("no such job")));
    EXPECT_THAT(Tool({what, "get"}).out, Not(HasSubstr("no such job")));
  }
}

// Of a machine without, a word; of one whose GPUs lie idle, why.
TEST_F(ContextTest, StatusSaysWhyGpusAreNotUsed) {
  const auto set = [this](daemon::GpusUsed use, const std::string& unused) {
    core_.Update([&](Snapshot* snapshot) {
      snapshot->core.gpus.use = use;
      snapshot->core.gpus.unused = unused;
      snapshot->core.gpus.advice = "install it";
    });
  };
  set(daemon::GpusUsed::kNone, "there is no CUDA driver");
  EXPECT_THAT(Tool({"status"}).out,
              AllOf(HasSubstr("gpus          none\n"), Not(HasSubstr("driver"))));
  EXPECT_EQ(Json({"status"})["status"]["gpus"]["use"], "none");
  set(daemon::GpusUsed::kOff, "gpu.enabled is off");
  EXPECT_THAT(Tool({"status"}).out, HasSubstr("gpus          not used: gpu.enabled is off\n"));
  EXPECT_EQ(Json({"status"})["status"]["gpus"]["use"], "off");
  set(daemon::GpusUsed::kUnusable, "no \x1b[1mkernels");
  EXPECT_THAT(Tool({"status"}).out, AllOf(HasSubstr("gpus          not used: no "),
                                          HasSubstr("kernels\n"), Not(HasSubstr("\x1b"))));
  const nlohmann::json gpus = Json({"status"})["status"]["gpus"];
  EXPECT_EQ(gpus["use"], "unusable");
  EXPECT_EQ(gpus["advice"], "install it");
}

TEST_F(ContextTest, StatusNamesGpusThatAreNotUsedBesideOthers) {
  core_.Update([&](Snapshot* snapshot) {
    snapshot->core.gpus.use = daemon::GpusUsed::kUsed;
    snapshot->core.gpus.gpus.push_back({.name = "NVIDIA H100"});
    snapshot->core.gpus.refused = {"GPU 1: out of memory"};
  });
  EXPECT_THAT(Tool({"status"}).out,
              AllOf(HasSubstr("0 NVIDIA H100"),
                    HasSubstr("              not used: the driver's GPU 1: out of memory\n")));
}

TEST_F(ContextTest, StatusSaysOnceWhatIsWrongWithGpus) {
  core_.Update([&](Snapshot* snapshot) {
    snapshot->core.gpus.use = daemon::GpusUsed::kUsed;
    snapshot->core.gpus.nccl = "NCCL cannot be loaded: libnccl.so.2: no such file";
    snapshot->core.gpus.gpus = {
        {.id = "GPU-7", .name = "H100", .failure = "GPU 0 (H100) has failed: its work hangs"},
        {.id = "GPU-8", .name = "H100", .failure = "its context is lost"}};
  });
  EXPECT_THAT(Tool({"status"}).out,
              AllOf(HasSubstr("              between nodes through the hosts: NCCL cannot be "
                              "loaded: libnccl.so.2: no such file\n"),
                    HasSubstr(", GPU-7, FAILED: its work hangs\n"),
                    HasSubstr(", GPU-8, FAILED: its context is lost\n")));
}

TEST_F(ContextTest, Status) {
  const ToolRun run = Tool({"status"});
  EXPECT_EQ(run.code, kFine);
  EXPECT_THAT(run.out, AllOf(HasSubstr("ready, version 1.2.3, pid 4321, up 1m 30s"),
                             HasSubstr("2 sessions, 2 jobs"), HasSubstr("0123456789abcdef")));
  EXPECT_EQ(Json({"status"})["status"]["channels"], 2);
  core_.Update([](Snapshot* snapshot) {
    snapshot->core.healthy = false;
    snapshot->core.health_detail = "no \x1b[1mprogress";
  });
  const ToolRun sick = Tool({"status"});
  EXPECT_EQ(sick.code, kUnhealthy);
  EXPECT_THAT(sick.err, HasSubstr("not healthy: no ?[1mprogress"));
  const ToolRun json = Tool({"status", "-o", "json"});
  EXPECT_EQ(json.code, kUnhealthy);
  EXPECT_EQ(json.json()["status"]["healthy"], false);  // the state, not an error object
}

TEST_F(ContextTest, Lists) {
  EXPECT_THAT(Tool({"jobs"}).out, AllOf(HasSubstr("job-41"), HasSubstr("10.0%")));
  EXPECT_EQ(Json({"jobs"})["jobs"].size(), 2u);
  core_.Update([](Snapshot* snapshot) {
    snapshot->comms[1].state = "failed";
    snapshot->comms[1].error = "rank 3 died";
  });
  EXPECT_THAT(Tool({"comms"}).out, AllOf(HasSubstr("communicator 42: rank 3 died"),
                                         HasSubstr("local"), Not(HasSubstr("PHASE"))));
  EXPECT_THAT(Tool({"comms", "--ranks"}).out, AllOf(HasSubstr("PHASE"), HasSubstr("idle")));
  EXPECT_THAT(Tool({"comms", "--job", "job-41"}).out, Not(HasSubstr("job-42")));
  EXPECT_EQ(Json({"comms", "--job", "job-41"})["comms"][0]["members"][0]["pid"], 100);
  EXPECT_THAT(Tool({"buffers"}).out, AllOf(HasSubstr("mapped"), HasSubstr("4.0 KiB")));
  EXPECT_EQ(Json({"buffers", "--job", "job-42"})["buffers"][0]["uses"], 3);
  for (const char* list : {"comms", "buffers"}) {
    const ToolRun none = Tool({list, "--job", "jbo-41"});
    EXPECT_EQ(none.code, kNotFound);
    EXPECT_EQ(none.out, "");
    EXPECT_THAT(none.err, HasSubstr("there is no job jbo-41 now"));
  }
  EXPECT_THAT(Tool({"comms", "--nodes"}).out,
              AllOf(HasSubstr("no communicator is over several nodes"), Not(HasSubstr("ROUTE"))));
}

TEST_F(ContextTest, Thresholds) {
  EXPECT_EQ(Tool({"threshold", "set", "--codec", "coo", "--ag", "0.25", "--job", "job-41"}).code,
            kFine);
  const ToolRun got = Tool({"threshold", "get", "--job", "job-41"});
  EXPECT_THAT(got.out, AllOf(HasSubstr("job job-41"), HasSubstr("0.25 *"), HasSubstr(" auto ")));
  const nlohmann::json json = Json({"threshold", "get", "--job", "job-41"});
  EXPECT_EQ(json["overrides"]["coo"]["ag"], 0.25);
  EXPECT_TRUE(json["overrides"]["coo"]["intra"].is_null());
  EXPECT_EQ(json["resolved"]["coo"]["intra"], policy::kAutoThreshold);
  EXPECT_EQ(Json({"threshold", "set", "--intra", "0", "--comm", "41"})["communicators"], 1);
  EXPECT_EQ(settings_->Get(daemon::CommScope{41}).pici.intra, 0);
  EXPECT_EQ(Tool({"threshold", "set", "--inter", "auto", "--comm", "41"}).code, kFine);
  EXPECT_EQ(settings_->Get(daemon::CommScope{41}).pici.inter, policy::kAutoThreshold);
  EXPECT_EQ(Tool({"threshold", "set", "--inter", "auto", "--job", "job-41"}).code, kFine);
  EXPECT_THAT(Tool({"threshold", "get", "--job", "job-41"}).out, HasSubstr("auto *"));
  EXPECT_EQ(Tool({"threshold", "set", "--intra", "0.125"}).code, kFine);
  EXPECT_EQ(settings_->Get(daemon::GlobalScope{}).pici.intra, 0.125);
  EXPECT_EQ(Tool({"algo", "set", "ring"}).code, kFine);
  EXPECT_EQ(Tool({"threshold", "reset"}).code, kFine);
  EXPECT_EQ(settings_->Get(daemon::GlobalScope{}).pici.intra, std::nullopt);
  EXPECT_EQ(settings_->Get(daemon::GlobalScope{}).algorithm, policy::Algorithm::kRing);
}

TEST_F(ContextTest, AllThresholdsAtOnce) {
  EXPECT_EQ(Tool({"threshold", "set", "auto", "--job", "job-41"}).code, kFine);
  policy::Settings resolved = policy::Apply({}, settings_->Get(daemon::JobScope{"job-41"}));
  EXPECT_EQ(resolved.pici, policy::kAutoThresholds);
  EXPECT_EQ(resolved.coo, policy::kAutoThresholds);
  EXPECT_EQ(Tool({"threshold", "set", "paper", "--job", "job-41"}).code, kFine);
  resolved = policy::Apply({}, settings_->Get(daemon::JobScope{"job-41"}));
  EXPECT_EQ(resolved.pici, policy::kPiciThresholds);
  EXPECT_EQ(resolved.coo, policy::kCooThresholds);
  EXPECT_EQ(Tool({"threshold", "set", "auto", "--job", "job-41", "--codec", "coo"}).code, kFine);
  resolved = policy::Apply({}, settings_->Get(daemon::JobScope{"job-41"}));
  EXPECT_EQ(resolved.pici, policy::kPiciThresholds);
  EXPECT_EQ(resolved.coo, policy::kAutoThresholds);
  EXPECT_THAT(Tool({"threshold", "reset", "--job", "nosuch"}).out, Not(HasSubstr("kept")));
  EXPECT_EQ(Tool({"threshold", "set", "auto", "--ag", "0.5"}).code, kWrongUse);
  EXPECT_EQ(Tool({"threshold", "set", "best"}).code, kWrongUse);
  EXPECT_EQ(RunArgs({"threshold", "get", "--runtime-dir", ""}).code, kWrongUse);
}

TEST_F(ContextTest, SettingsTellWhoSaysThem) {
  core_.Update([](Snapshot* snapshot) {
    snapshot->comms[0].wishes.algorithm = policy::Algorithm::kRing;
    snapshot->comms[0].settings.algorithm = policy::Algorithm::kRing;
  });
  constexpr char kBut[] = "but for 1 whose ranks' environment says it";
  EXPECT_THAT(Tool({"algo", "set", "local", "--job", "job-41"}).out, HasSubstr(kBut));
  EXPECT_THAT(Tool({"algo", "get", "--comm", "41"}).out, HasSubstr("ring (environment)"));
  EXPECT_THAT(Tool({"algo", "get", "--job", "job-41"}).out, HasSubstr("local *"));
  EXPECT_THAT(Tool({"algo", "set", "local", "--comm", "41"}).out, Not(HasSubstr(kBut)));
  EXPECT_THAT(Tool({"algo", "get", "--comm", "41"}).out, HasSubstr(" *"));
  EXPECT_EQ(Tool({"threshold", "set", "--intra", "0.25", "--job", "job-42"}).code, kFine);
  EXPECT_EQ(Tool({"threshold", "set", "--inter", "0.75"}).code, kFine);
  EXPECT_THAT(Tool({"threshold", "get", "--comm", "42"}).out,
              AllOf(HasSubstr(" (job) "), HasSubstr(" (global) "), HasSubstr(" auto\n")));
  EXPECT_THAT(Tool({"threshold", "get", "--job", "job-42"}).out,
              AllOf(HasSubstr("0.25 *"), HasSubstr("0.75 (global)")));
}

TEST_F(ContextTest, SettingsTellOfThoseThatStandBefore) {
  constexpr char kBut[] = "but for 1 with settings of their own";
  EXPECT_THAT(Tool({"algo", "set", "ring", "--comm", "41"}).out, Not(HasSubstr(kBut)));
  EXPECT_THAT(Tool({"algo", "set", "local", "--job", "job-41"}).out, HasSubstr(kBut));
  EXPECT_THAT(Tool({"algo", "set", "local"}).out, HasSubstr("their own or of their job"));
}

TEST_F(ContextTest, Algorithms) {
  EXPECT_EQ(Tool({"algo", "set", "ring", "--codec", "pici-column", "--comm", "42"}).code, kFine);
  EXPECT_EQ(settings_->Get(daemon::CommScope{42}).algorithm, policy::Algorithm::kRing);
  EXPECT_EQ(settings_->Get(daemon::CommScope{42}).codec, policy::Codec::kPiciColumn);
  EXPECT_EQ(Tool({"algo", "set", "local"}).code, kFine);
  EXPECT_THAT(Tool({"algo", "get"}).out, AllOf(HasSubstr("local *"), HasSubstr("auto")));
  EXPECT_EQ(Json({"algo", "get"})["overrides"]["algorithm"], "local");
  EXPECT_EQ(Tool({"algo", "reset"}).code, kFine);
  EXPECT_EQ(settings_->Get(daemon::GlobalScope{}), policy::Overrides{});
}

TEST_F(ContextTest, Top) {
  const ToolRun run = Tool({"top", "--once", "--interval", "10ms"});
  EXPECT_EQ(run.code, kFine) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("OPS/S"), HasSubstr("job-42"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(run.out, ::testing::MatchesRegex("[0-9-]+T[0-9:.]+Z ready, up .*"));
  const nlohmann::json json = Json({"top", "--once", "--interval", "10ms"});
  EXPECT_EQ(json["comms"][0]["rates"]["ops_per_s"], 0.0);
  EXPECT_EQ(json["comms"][0]["counters"]["ops"], 41);
  EXPECT_EQ(Tool({"top", "--interval", "1ms"}).code, kWrongUse);
}

TEST_F(ContextTest, Events) {
  core_.Emit({.sequence = 0,
              .unix_nanos = 1'500'000'000,
              .kind = "comm-failed",
              .job_id = "j",
              .comm_id = 4,
              .uid = 5,
              .message = "because\x1b"});
  core_.Emit({.sequence = 0,
              .unix_nanos = 0,
              .kind = "drained",
              .job_id = "",
              .comm_id = 0,
              .uid = 0,
              .message = "second"});
  EXPECT_EQ(Tool({"events"}).out,
            "1970-01-01T00:00:01.500Z #1 comm-failed job=j comm=4 uid=5: because?\n"
            "1970-01-01T00:00:00.000Z #2 drained uid=0: second\n");
  EXPECT_THAT(Tool({"events", "--since", "2"}).out, Not(HasSubstr("because")));
  EXPECT_EQ(Json({"events"})["event"]["kind"], "comm-failed");
}

TEST_F(ContextTest, EventsAreFollowedUntilTheDaemonGoes) {
  ToolRun run;
  std::thread tool([&] { run = Tool({"events", "--follow", "-o", "json"}); });
  ASSERT_TRUE(core_.WaitForSubscribers(1));
  core_.Emit({.sequence = 0,
              .unix_nanos = 0,
              .kind = "k",
              .job_id = "",
              .comm_id = 0,
              .uid = 0,
              .message = "live"});
  server_.reset();
  tool.join();
  EXPECT_EQ(run.code, kNotReachable);
  // What happened, and then what ended it.
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("live"), HasSubstr("\n{\"schema\":\"spccl.v1\",\"error\":{")));
}

TEST_F(ContextTest, EventsThatCannotBePrintedAreOneFailure) {
  core_.Emit({.sequence = 0,
              .unix_nanos = 0,
              .kind = "k",
              .job_id = "",
              .comm_id = 0,
              .uid = 0,
              .message = "lost"});
  std::ofstream full("/dev/full");
  full << std::unitbuf;
  std::ostringstream err;
  const char* const argv[] = {"spcclctl", "events", "--runtime-dir", folder_.c_str()};
  EXPECT_EQ(RunTool(4, argv, &full, &err), kUnhealthy);
  EXPECT_EQ(err.str(), "spcclctl: standard output could not be written\n");
}

TEST_F(ContextTest, AnEmptyScopeIsNotTheGlobalOne) {
  for (const char* scope : {"--job", "--comm"}) {
    EXPECT_EQ(Tool({"threshold", "set", scope, "", "--intra", "0.1"}).code, kWrongUse);
    EXPECT_EQ(Tool({"threshold", "reset", scope, ""}).code, kWrongUse);
    EXPECT_EQ(Tool({"algo", "set", "ring", scope, ""}).code, kWrongUse);
  }
}

TEST_F(ContextTest, DrainAndAbort) {
  EXPECT_EQ(Tool({"drain"}).out, "draining\n");
  EXPECT_THAT(Tool({"status"}).out, HasSubstr("draining"));
  EXPECT_EQ(Json({"drain", "--undo"})["draining"], false);
  EXPECT_EQ(Tool({"abort", "42", "--reason", "stuck"}).code, kFine);
  ASSERT_EQ(core_.aborts().size(), 1u);
  EXPECT_THAT(core_.aborts()[0].second, HasSubstr(": stuck"));
}

TEST_F(ContextTest, WaitAndVersion) {
  EXPECT_EQ(Tool({"wait", "--ready", "--timeout", "10s"}).out, "ready\n");
  EXPECT_EQ(Json({"wait", "--ready"})["ready"], true);
  EXPECT_EQ(Tool({"wait"}).code, kWrongUse);
  EXPECT_EQ(Tool({"version"}).out, "spcclctl " + std::string(kVersion) + "\nspccld 1.2.3\n");
  core_.Update([](Snapshot* snapshot) { snapshot->core.healthy = false; });
  std::thread healer(
      [this] { core_.Update([](Snapshot* snapshot) { snapshot->core.healthy = true; }); });
  EXPECT_EQ(Tool({"wait", "--ready", "--timeout", "20s"}).code, kFine);
  healer.join();
}

// The attempt that is under way when the time is over does not unsay what the daemon said before.
TEST_F(ContextTest, WaitTellsTheLastAnswer) {
  core_.Update([](Snapshot* snapshot) { snapshot->core.healthy = false; });
  core_.AnswerOnly(1);
  const ToolRun run = Tool({"wait", "--ready", "--timeout", "3s"});
  core_.AnswerAll();
  EXPECT_EQ(run.code, kUnhealthy) << run.err;
  EXPECT_THAT(run.err, HasSubstr("not ready in time: the daemon is not healthy"));
}

TEST_F(ContextTest, ExitCodeOneIsWrongUse) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{},
                                             {"nonsense"},
                                             {"status", "--nonsense"},
                                             {"threshold"},
                                             {"threshold", "set"},
                                             {"threshold", "set", "--intra", "1.5"},
                                             {"threshold", "set", "--intra", "nan"},
                                             {"threshold", "set", "--codec", "zip", "--ag", "0"},
                                             {"threshold", "get", "--job", "a", "--comm", "1"},
                                             {"threshold", "set", "--ag", "1", "--job", "no\nid"},
                                             {"algo", "set"},
                                             {"algo", "set", "star"},
                                             {"abort"},
                                             {"abort", "x"},
                                             {"status", "-o", "xml"},
                                             {"status", "--deadline", "5"},
                                             {"status", "--deadline", "-5s"},
                                             {"completion", "csh"}}) {
    const ToolRun run = Tool(wrong);
    EXPECT_EQ(run.code, kWrongUse) << ::testing::PrintToString(wrong);
    EXPECT_THAT(run.err, HasSubstr("spcclctl: "));
    EXPECT_EQ(run.out, "");
  }
  EXPECT_EQ(Tool({"--help"}).code, kFine);
  const ToolRun help = Tool({"threshold", "set", "--help"});
  EXPECT_EQ(help.code, kFine);
  EXPECT_THAT(help.out, HasSubstr("spcclctl --help"));
  EXPECT_THAT(Tool({"--version"}).out, HasSubstr(kVersion));
}

TEST_F(ContextTest, ExitCodeTwoIsNotReachable) {
  const ToolRun run = RunArgs({"status", "--runtime-dir", folder_ + "/none", "-o", "json"});
  EXPECT_EQ(run.code, kNotReachable);
  EXPECT_EQ(run.json()["schema"], "spccl.v1");
  EXPECT_EQ(run.json()["error"]["code"], "not-reachable");
  EXPECT_EQ(run.json()["error"]["exit_code"], 2);
  EXPECT_THAT(run.err, HasSubstr("no daemon at " + folder_ + "/none/control.sock"));
  server_.reset();
  EXPECT_EQ(Tool({"jobs"}).code, kNotReachable);
  EXPECT_EQ(Tool({"wait", "--ready", "--timeout", "50ms"}).code, kNotReachable);
}

TEST_F(ContextTest, ExitCodeTwoAlsoWhereSomebodyListensAndSaysNothing) {
  server_.reset();
  const UniqueFd mute(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (folder_ + "/control.sock").c_str());
  ASSERT_EQ(::bind(mute.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(mute.get(), 8), 0);
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"status"},
                                             {"events"},
                                             {"events", "--follow"},
                                             {"top", "--once", "--interval", "10ms"},
                                             {"wait", "--ready", "--timeout", "300ms"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--runtime-dir", folder_, "--deadline", "100ms"});
    EXPECT_EQ(RunArgs(arguments).code, kNotReachable) << ::testing::PrintToString(command);
  }
}

TEST_F(ContextTest, ExitCodeThreeIsTheDaemonsTrouble) {
  core_.Fail(absl::DeadlineExceededError("the core does not answer"));
  const ToolRun run = Tool({"jobs"});
  EXPECT_EQ(run.code, kUnhealthy);
  EXPECT_THAT(run.err, HasSubstr("the core does not answer"));
  core_.Fail(absl::DeadlineExceededError("the core does not answer"), 2);  // in the middle
  EXPECT_EQ(Tool({"top", "--once", "--interval", "10ms"}).code, kUnhealthy);
}

TEST_F(ContextTest, ExitCodeFiveIsNotFound) {
  EXPECT_EQ(Tool({"abort", "77"}).code, kNotFound);
  EXPECT_EQ(Tool({"threshold", "get", "--comm", "77"}).code, kNotFound);
}

TEST(ExitCodeTest, EachHasItsName) {
  EXPECT_EQ(NameOf(kDenied), "denied");
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), kDenied);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), kNotFound);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), kUnhealthy);
}

}  // namespace
}  // namespace spccl::ctl
