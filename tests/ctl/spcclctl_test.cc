// The real tool against the real daemon, as processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "nlohmann/json.hpp"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"

namespace spccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SpawnedDaemon;

constexpr uid_t kNobody = 65534;

struct Ran {
  int code = -1;
  std::string output;  // both streams
  int64_t nanos = 0;
};

class SpcclctlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = SpawnedDaemon::Start();
    ASSERT_TRUE(started.ok()) << started.status();
    daemon_ = *std::move(started);
    // mkdtemp's folder is closed to others.
    std::filesystem::permissions(daemon_->runtime_dir(), std::filesystem::perms(0755));
  }

  // A program of the build that this test is of.
  static std::string Binary(const std::string& name) {
    const auto self = std::filesystem::canonical("/proc/self/exe");
    return self.parent_path().parent_path() / "bin" / name;
  }
  // Runs the tool that was built beside this test, as another user if asked to; `on_output` is
  // called once, when the first output has come.
  Ran Tool(const std::vector<std::string>& arguments, uid_t uid = 0,
           std::function<void()> on_output = nullptr) {
    const std::string binary = Binary("spcclctl");
    std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const int64_t start = MonotonicNanos();
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::setenv("SPCCL_RUNTIME_DIR", daemon_->runtime_dir().c_str(), 1);
      if (uid != 0 && ::setresuid(uid, uid, uid) != 0) _exit(99);
      ::execv(binary.c_str(), argv.data());
      _exit(98);
    }
    ::close(ends[1]);
    Ran ran;
    char block[4096];
    for (ssize_t got; (got = ::read(ends[0], block, sizeof block)) > 0;) {
      ran.output.append(block, static_cast<size_t>(got));
      if (on_output != nullptr) std::exchange(on_output, nullptr)();
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ran.nanos = MonotonicNanos() - start;
    return ran;
  }
  nlohmann::json Json(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const Ran ran = Tool(arguments);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return nlohmann::json::parse(ran.output, nullptr, false);
  }

  std::unique_ptr<SpawnedDaemon> daemon_;
};

TEST_F(SpcclctlTest, SeesAndSteersWhatRuns) {
  EXPECT_EQ(Tool({"wait", "--ready", "--timeout", "10s"}).code, 0);
  auto ranks = testing::FormComm(daemon_->socket_path(), 2);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  auto buffer = (*ranks)[0].client.Allocate(4096);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(Json({"status"})["status"]["communicators"], 1);
  const nlohmann::json comms = Json({"comms"});
  ASSERT_EQ(comms["comms"].size(), 1u);
  EXPECT_EQ(comms["comms"][0]["ranks"], 2);
  EXPECT_EQ(comms["comms"][0]["state"], "ready");
  EXPECT_EQ(comms["boot_id"].get<std::string>().size(), 16u);
  const uint64_t id = comms["comms"][0]["id"];
  EXPECT_EQ(Json({"buffers"})["buffers"].size(), 1u);
  EXPECT_EQ(Json({"jobs"})["jobs"].size(), 1u);
  EXPECT_EQ(Tool({"algo", "set", "ring", "--codec", "coo", "--comm", std::to_string(id)}).code, 0);
  EXPECT_EQ(
      Tool({"threshold", "set", "--codec", "coo", "--intra", "0.125", "--comm", std::to_string(id)})
          .code,
      0);
  const nlohmann::json settings = Json({"comms"})["comms"][0]["settings"];
  EXPECT_EQ(settings["algorithm"], "ring");
  EXPECT_EQ(settings["codec"], "coo");
  EXPECT_EQ(settings["coo"]["intra"], 0.125);
  EXPECT_EQ(settings["lossy"], "off");
  const std::string comm = std::to_string(id);
  EXPECT_EQ(Tool({"codec", "set", "errorbound", "--absolute", "0.5", "--comm", comm}).code, 0);
  EXPECT_EQ(Json({"comms"})["comms"][0]["settings"]["lossy"], "errorbound:absolute=0.5");
  EXPECT_THAT(Tool({"comms"}).output, HasSubstr("coo, lossy errorbound:absolute=0.5"));
  EXPECT_EQ(Tool({"codec", "set", "qsgd4", "--seed", "9", "--comm", comm}).code, 0);
  EXPECT_EQ(Json({"comms"})["comms"][0]["settings"]["lossy"], "qsgd4:seed=9");
  EXPECT_EQ(Tool({"algo", "set", "split", "--comm", comm}).code, 0);
  EXPECT_EQ(Json({"comms"})["comms"][0]["settings"]["lossy"], "qsgd4:seed=9");
  EXPECT_EQ(Tool({"algo", "set", "split", "--codec", "coo", "--comm", comm}).code, 0);
  EXPECT_EQ(Json({"comms"})["comms"][0]["settings"]["lossy"], "off");
  EXPECT_EQ(Tool({"codec", "set", "qsgd4", "--seed", "9", "--comm", comm}).code, 0);
  for (const char* bound : {"nan", "-1", "0", "inf", "x"}) {
    EXPECT_EQ(Tool({"codec", "set", "errorbound", "--absolute", bound, "--comm", comm}).code, 1)
        << bound;
  }
  EXPECT_EQ(Tool({"codec", "set", "errorbound", "--comm", comm}).code, 1);
  EXPECT_EQ(Tool({"codec", "set", "pici", "--absolute", "1", "--comm", comm}).code, 1);
  EXPECT_EQ(Json({"comms"})["comms"][0]["settings"]["lossy"], "qsgd4:seed=9");
  EXPECT_EQ(Tool({"codec", "set", "gap", "--comm", comm}).code, 0);
  EXPECT_EQ(Json({"comms"})["comms"][0]["settings"]["lossy"], "off");
  EXPECT_EQ(Json({"comms"})["comms"][0]["settings"]["codec"], "gap");
  EXPECT_EQ(Tool({"abort", std::to_string(id), "--reason", "by the test"}).code, 0);
  const auto notice = (*ranks)[1].client.AwaitNotice(shm::ReplyType::kCommFailed);
  ASSERT_TRUE(notice.ok()) << notice.status();
  EXPECT_THAT(std::string(shm::TextOf(notice->message)), HasSubstr("by the test"));
  EXPECT_THAT(Tool({"events"}).output, AllOf(HasSubstr("comm-ready"), HasSubstr("comm-failed")));
  EXPECT_EQ(Tool({"doctor"}).code, 0);
}

TEST_F(SpcclctlTest, DrainingLetsWhatRunsGoOnAndRefusesTheNew) {
  auto ranks = testing::FormComm(daemon_->socket_path(), 2);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  auto first = (*ranks)[0].client.Allocate(4096), second = (*ranks)[1].client.Allocate(4096);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto post = [&](size_t rank, const testing::RawBuffer& buffer) {
    testing::RawRank& of = (*ranks)[rank];
    ASSERT_TRUE(of.client.Push(testing::AllReduceSlot(of, buffer, 16, 0, 2048)));
  };
  post(0, *first);  // in progress when the drain begins: rank 1 is still to come
  EXPECT_EQ(Tool({"drain"}).code, 0);
  EXPECT_FALSE(testing::RawClient::Open(daemon_->socket_path()).ok());
  post(1, *second);
  post(0, *first);  // and the job goes on
  post(1, *second);
  for (testing::RawRank& rank : *ranks) {
    for (int i = 0; i < 2; ++i) {
      const auto completion = rank.client.AwaitCompletion();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(completion->result, 0u) << completion->message;
    }
  }
  EXPECT_THAT(Tool({"doctor"}).output, HasSubstr("draining: it takes no new sessions"));
  ranks->clear();  // the job has ended: the daemon may be stopped when nobody is left
  while (Json({"status"})["status"]["sessions"] != 0) std::this_thread::yield();
  EXPECT_EQ(Tool({"drain", "--undo"}).code, 0);
  EXPECT_TRUE(testing::RawClient::Open(daemon_->socket_path()).ok());
}

// The client library that was built beside this test.
class LibraryPath {
 public:
  LibraryPath() { ::setenv("LD_LIBRARY_PATH", SPCCL_LIBRARY_FOLDER, 1); }
  ~LibraryPath() { ::unsetenv("LD_LIBRARY_PATH"); }
};

TEST_F(SpcclctlTest, DoctorSeesThisDaemon) {
  const LibraryPath path;
  std::map<std::string, nlohmann::json> checks;
  const nlohmann::json found = Json({"doctor"});
  for (const nlohmann::json& check : found["checks"]) checks[check["name"]] = check;
  const std::string pid = std::to_string(daemon_->pid());
  for (const char* name : {"runtime folder", "session.sock", "control.sock", "daemon", "versions",
                           "client library", "configuration", "namespaces", "/proc/self/mem"}) {
    EXPECT_EQ(checks[name]["verdict"], "ok") << checks[name];
  }
  EXPECT_THAT(checks["control.sock"]["found"].get<std::string>(), HasSubstr("pid " + pid));
  EXPECT_THAT(checks["session.sock"]["found"].get<std::string>(), HasSubstr("pid " + pid));
  EXPECT_THAT(checks["client library"]["found"].get<std::string>(), HasSubstr("opens a session"));
  EXPECT_THAT(checks["locked memory"]["found"].get<std::string>(), HasSubstr("the daemon's"));
  // Gone without a word: its sockets are left.
  daemon_->Signal(SIGKILL);
  ASSERT_TRUE(daemon_->Wait(10'000).ok());
  const Ran dead = Tool({"doctor"});
  EXPECT_EQ(dead.code, 3);
  EXPECT_THAT(dead.output, AllOf(HasSubstr("failed   control.sock"), HasSubstr("nobody listens"),
                                 HasSubstr("do:  start spccld")));
}

TEST_F(SpcclctlTest, DoctorRefusesAFileThatTheDaemonRefuses) {
  const std::string file = daemon_->runtime_dir() + "/bad.toml";
  std::ofstream(file) << "op_timeot = \"1m\"\n";
  const Ran bad = Tool({"doctor", "--config", file});
  EXPECT_EQ(bad.code, 3);
  EXPECT_THAT(bad.output, HasSubstr("failed   configuration: "));
  EXPECT_THAT(bad.output, HasSubstr("op_timeot"));
  std::ofstream(file) << "op_timeout = \"1m\"\n";
  EXPECT_THAT(Tool({"doctor", "--config", file}).output, HasSubstr("ok       configuration: "));
}

TEST_F(SpcclctlTest, ASupportBundleOfThisDaemon) {
  auto ranks = testing::FormComm(daemon_->socket_path(), 2);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const std::string file = daemon_->runtime_dir() + "/bundle.tar.gz";
  const nlohmann::json made = Json({"support-bundle", "--out", file});
  EXPECT_EQ(made["file"], file);
  std::map<std::string, nlohmann::json> parts;
  for (const nlohmann::json& part : made["parts"]) parts[part["name"]] = part;
  for (const std::string name :
       {"doctor.json", "daemon/status.json", "daemon/jobs.json", "daemon/comms.json",
        "daemon/buffers.json", "daemon/settings.json", "daemon/events.json", "daemon/config.txt",
        "daemon/metrics.txt", "daemon/arguments.txt", "daemon/limits.txt", "daemon/log.txt",
        "machine/kernel.txt", "machine/proc/mounts", "machine/proc/meminfo"}) {
    EXPECT_EQ(parts[name]["error"], nullptr) << name << parts[name];
    EXPECT_GT(parts[name]["bytes"], 0) << name;
  }
  const auto extract = [&](const std::string& part) {
    FILE* pipe = ::popen(("tar -xzOf " + file + " --wildcards '*/" + part + "'").c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
    EXPECT_EQ(::pclose(pipe), 0);
    return text;
  };
  EXPECT_EQ(nlohmann::json::parse(extract("daemon/comms.json"))["comms"][0]["ranks"], 2);
  EXPECT_THAT(extract("daemon/metrics.txt"), HasSubstr("spccl_healthy 1"));
  EXPECT_THAT(extract("daemon/events.json"), HasSubstr("comm-ready"));
  EXPECT_THAT(extract("daemon/log.txt"), HasSubstr("serving"));
  EXPECT_EQ(nlohmann::json::parse(extract("doctor.json"))["schema"], "spccl.v1");
}

TEST_F(SpcclctlTest, RegistersJobsAndEndsThem) {
  const std::vector<std::string> job = {"--id", "77", "--uid", "4711"};
  const auto command = [&job](const std::string& verb) {
    std::vector<std::string> words = {"job", verb};
    words.insert(words.end(), job.begin(), job.end());
    return words;
  };
  EXPECT_EQ(Tool(command("register")).output, "registered u4711.j77\n");
  EXPECT_THAT(Tool({"jobs"}).output, HasSubstr("u4711.j77"));
  EXPECT_EQ(Tool(command("register"), kNobody).code, 4);
  EXPECT_EQ(Tool({"job", "register", "--id", "78", "--uid", "1", "--cgroup", "x"}).code, 1);
  EXPECT_EQ(
      Tool(command("end")).output,
      "ended u4711.j77: closed 0 sessions and 0 communicators with 0 B of buffers; 0 jobs and "
      "0 sessions left\n");
  EXPECT_THAT(Tool(command("end")).output, HasSubstr("it was not registered"));
}

TEST_F(SpcclctlTest, SetsWhatAJobGetsAndMayTake) {
  ASSERT_EQ(Tool({"job", "register", "--id", "77", "--uid", "4711", "--weight", "3"}).code, 0);
  const auto share = [&] { return Json({"jobs"})["jobs"][0]["share"]; };
  EXPECT_EQ(share()["weight"], 3);
  EXPECT_EQ(share()["max_communicators"], 0);
  const Ran set = Tool({"job", "set", "u4711.j77", "--max-communicators", "8", "--max-channels",
                        "2", "--max-buffer-bytes", "1MiB", "--max-operations", "5"});
  EXPECT_EQ(set.code, 0) << set.output;
  EXPECT_THAT(set.output, HasSubstr("1.0 MiB"));
  EXPECT_EQ(share()["weight"], 3);
  EXPECT_EQ(share()["max_communicators"], 8);
  EXPECT_EQ(share()["max_channels"], 2);
  EXPECT_EQ(share()["max_buffer_bytes"], 1048576);
  EXPECT_EQ(share()["max_operations"], 5);
  EXPECT_THAT(Tool({"jobs"}).output, HasSubstr("0/8"));
  EXPECT_EQ(Tool({"job", "set", "u4711.j77", "--weight", "2"}, kNobody).code, 4);
  EXPECT_EQ(Tool({"job", "set", "u4711.j77", "--weight", "1001"}).code, 1);
  EXPECT_EQ(Tool({"job", "set", "u4711.j77", "--weight", "99999999999"}).code, 1);
  const Ran nothing = Tool({"job", "set", "u4711.j77"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.output, HasSubstr("name --weight"));
  EXPECT_THAT(set.output, Not(HasSubstr("no such job")));
  EXPECT_THAT(Tool({"job", "set", "bogus", "--weight", "2"}).output, HasSubstr("no such job"));
  EXPECT_THAT(Tool({"job", "reset", "bogus"}).output, HasSubstr("no such job"));
  EXPECT_EQ(Tool({"job", "reset", "u4711.j77"}).code, 0);
  EXPECT_EQ(share()["weight"], 1);
  ASSERT_EQ(Tool({"job", "end", "--id", "77", "--uid", "4711"}).code, 0);
}

TEST_F(SpcclctlTest, AStoppedDaemonHangsNoCommand) {
  daemon_->Signal(SIGSTOP);
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"status"},
                                             {"jobs"},
                                             {"threshold", "get"},
                                             {"events"},
                                             {"events", "--follow"},
                                             {"top"},
                                             {"drain"},
                                             {"wait", "--ready", "--timeout", "300ms"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--deadline", "200ms"});
    const Ran ran = Tool(arguments);
    EXPECT_EQ(ran.code, 2) << ::testing::PrintToString(command) << ran.output;
    EXPECT_LT(ran.nanos, 10'000'000'000) << ::testing::PrintToString(command);
  }
  EXPECT_EQ(Tool({"doctor", "--deadline", "200ms"}).code, 3);
  daemon_->Signal(SIGCONT);
  EXPECT_EQ(Tool({"wait", "--ready"}).code, 0);
}

TEST_F(SpcclctlTest, AStreamEndsWhenItsDaemonHangs) {
  // Something to print first: then the stream is known to stand.
  ASSERT_TRUE(testing::RawClient::Open(daemon_->socket_path()).ok());
  bool stopped = false;
  const Ran ran = Tool({"events", "--follow", "--since", "1", "--deadline", "1s"}, 0, [&] {
    daemon_->Signal(SIGSTOP);
    stopped = true;
  });
  EXPECT_TRUE(stopped);
  EXPECT_EQ(ran.code, 2) << ran.output;  // its pings were not answered
  daemon_->Signal(SIGCONT);
}

TEST_F(SpcclctlTest, ADeadDaemonIsNotReachable) {
  daemon_->Signal(SIGKILL);
  ASSERT_TRUE(daemon_->Wait(10'000).ok());
  EXPECT_EQ(Tool({"status"}).code, 2);
}

TEST_F(SpcclctlTest, SettingsAreThereAfterARestartAndTheBootIdIsNew) {
  EXPECT_EQ(Tool({"algo", "set", "ring", "--codec", "coo"}).code, 0);
  EXPECT_EQ(Tool({"threshold", "set", "--ag", "0.375", "--job", "to come"}).code, 0);
  const nlohmann::json before = Json({"status"});
  daemon_->Signal(SIGTERM);
  const auto end = daemon_->Wait(20'000);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, 0);
  const std::string& folder = daemon_->runtime_dir();
  const std::string binary = Binary("spccld"), state = folder + "/state";
  const pid_t again = ::fork();
  if (again == 0) {
    ::execl(binary.c_str(), binary.c_str(), "--runtime-dir", folder.c_str(), "--state-dir",
            state.c_str(), nullptr);
    _exit(98);
  }
  EXPECT_EQ(Tool({"wait", "--ready", "--timeout", "20s"}).code, 0);
  const nlohmann::json algo = Json({"algo", "get"});
  EXPECT_EQ(algo["overrides"]["algorithm"], "ring");
  EXPECT_EQ(algo["overrides"]["codec"], "coo");
  EXPECT_EQ(Json({"threshold", "get", "--job", "to come"})["overrides"]["pici"]["ag"], 0.375);
  EXPECT_NE(algo["boot_id"], before["boot_id"]);
  ::kill(again, SIGTERM);
  int status = 0;
  ::waitpid(again, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(SpcclctlTest, AStrangerSeesNothingAndChangesNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  auto ranks = testing::FormComm(daemon_->socket_path(), 1);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const uint64_t id = Json({"comms"})["comms"][0]["id"];
  const Ran list = Tool({"comms", "-o", "json"}, kNobody);
  if (list.code == 98) GTEST_SKIP() << "another user may not run the tool from this folder";
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.output, HasSubstr("\"comms\":[]"));
  EXPECT_EQ(Tool({"abort", std::to_string(id)}, kNobody).code, 4);
  EXPECT_EQ(Tool({"drain"}, kNobody).code, 4);
  EXPECT_EQ(Tool({"algo", "set", "ring"}, kNobody).code, 4);
  EXPECT_EQ(Tool({"algo", "get"}, kNobody).code, 0);
  std::filesystem::permissions(daemon_->runtime_dir(), std::filesystem::perms(0700));
  EXPECT_EQ(Tool({"status"}, kNobody).code, 4);  // may not even enter the folder
}

}  // namespace
}  // namespace spccl
