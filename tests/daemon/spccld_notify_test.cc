// What the real spccld tells its service manager.
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_env.h"
#include "tests/support/frozen_threads.h"
#include "tests/support/health_client.h"
#include "tests/support/notify_socket.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::FormComm;
using ::spccl::testing::Health;
using ::spccl::testing::HealthBecomes;
using ::spccl::testing::IsOk;
using ::spccl::testing::NotifySocket;
using ::spccl::testing::RawClient;
using ::spccl::testing::SpawnedDaemon;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPatienceMs = 30'000;
constexpr int64_t kSecond = 1'000'000'000;

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(SpccldNotifyTest, TellsOfItsLife) {
  NotifySocket manager(kSecond);
  const testing::TempFolder folder;
  const std::string file = folder.path() + "/spccld.toml";
  Write(file, "[limits]\nsessions = 1\n");
  const auto daemon = SpawnedDaemon::Start({"--config", file});
  ASSERT_THAT(daemon, IsOk());
  EXPECT_NE(manager.Await("READY=1"), "");
  EXPECT_NE(manager.Await("WATCHDOG=1"), "");
  EXPECT_NE(manager.Await("WATCHDOG=1"), "");
  auto first = RawClient::Open((*daemon)->socket_path());
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(RawClient::Open((*daemon)->socket_path()).ok());  // over the limit

  Write(file, "[limits]\nsessions = 2\n");
  (*daemon)->Signal(SIGHUP);
  EXPECT_NE(manager.Await("RELOADING=1"), "");
  EXPECT_THAT(manager.Await("READY=1"), HasSubstr("STATUS=serving"));
  auto second = RawClient::Open((*daemon)->socket_path());
  EXPECT_TRUE(second.ok());

  (*daemon)->Signal(SIGTERM);
  EXPECT_THAT(manager.Await("STOPPING=1"), HasSubstr("EXTEND_TIMEOUT_USEC=20000000"));
  const auto code = (*daemon)->Wait(kPatienceMs);
  ASSERT_THAT(code, IsOk());
  EXPECT_EQ(*code, 0) << (*daemon)->ReadLog();
}

TEST(SpccldNotifyTest, AReloadThatIsRefusedChangesNothing) {
  NotifySocket manager;
  const testing::TempFolder folder;
  const std::string file = folder.path() + "/spccld.toml";
  Write(file, "[limits]\nsessions = 1\n");
  const auto daemon = SpawnedDaemon::Start({"--config", file});
  ASSERT_THAT(daemon, IsOk());
  EXPECT_NE(manager.Await("READY=1"), "");
  auto first = RawClient::Open((*daemon)->socket_path());
  ASSERT_TRUE(first.ok());
  Write(file, "channels = 3\n[limits]\nsessions = 2\n");
  (*daemon)->Signal(SIGHUP);
  EXPECT_NE(manager.Await("RELOADING=1"), "");
  EXPECT_THAT(manager.Await("READY=1"), HasSubstr("needs a restart to change: channels"));
  // Wrong, below a line that alone would do.
  Write(file, "log.level = \"error\"\n[limits]\nsessions = \"many\"\n");
  (*daemon)->Signal(SIGHUP);
  EXPECT_NE(manager.Await("RELOADING=1"), "");
  EXPECT_THAT(manager.Await("READY=1"),
              AllOf(HasSubstr(file + ":3:"), HasSubstr("limits.sessions: found")));
  EXPECT_FALSE(RawClient::Open((*daemon)->socket_path()).ok());  // the limit is as it was
}

TEST(SpccldNotifyTest, AWedgedChannelThreadStopsTheWatchdog) {
  NotifySocket manager(300'000'000);
  const auto daemon = SpawnedDaemon::Start({"--stall-limit", "1s"});
  ASSERT_THAT(daemon, IsOk());
  const std::string control = (*daemon)->runtime_dir() + "/control.sock";
  const testing::FrozenThreads channels((*daemon)->pid(), "spccl-ch");
  if (channels.count() == 0) GTEST_SKIP() << "ptrace is not permitted here";
  EXPECT_NE(manager.Await("WATCHDOG=1"), "");
  EXPECT_TRUE(HealthBecomes(control, Health::kServing));
  auto ranks = FormComm((*daemon)->socket_path(), 1);
  ASSERT_THAT(ranks, IsOk());
  auto& rank = (*ranks)[0];
  constexpr uint64_t kCount = 1 << 20;  // too many for the core thread
  auto buffer = rank.client.Allocate(kCount * sizeof(float));
  ASSERT_THAT(buffer, IsOk());
  ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, kCount, 0, 0)));

  EXPECT_NE(manager.Await("STATUS=UNHEALTHY: no channel thread takes the work that is due"), "");
  EXPECT_TRUE(HealthBecomes(control, Health::kNotServing));
  manager.Clear();
  // Ten limits long it is not fed: systemd would have ended it after one.
  EXPECT_EQ(manager.Await("WATCHDOG=1", 3'000), "");
  EXPECT_THAT((*daemon)->ReadLog(), HasSubstr("no progress"));
}

}  // namespace
}  // namespace spccl::daemon
