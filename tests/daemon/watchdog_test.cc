#include "daemon/watchdog.h"

#include <poll.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "daemon/control_server.h"
#include "daemon/notify.h"
#include "gtest/gtest.h"
#include "tests/daemon/gate_hooks.h"
#include "tests/support/daemon_env.h"
#include "tests/support/health_client.h"
#include "tests/support/notify_socket.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FormComm;
using ::spccl::testing::Health;
using ::spccl::testing::HealthBecomes;
using ::spccl::testing::IsOk;
using ::spccl::testing::NotifySocket;

TEST(WatchdogTest, IsFedThreeTimesALimitWhileThereIsProgress) {
  NotifySocket manager;
  Progress progress{.age_ns = 0, .healthy = true, .detail = ""};
  Watchdog watchdog([&] { return progress; }, 300);
  EXPECT_EQ(watchdog.Turn(1000), 100);
  EXPECT_EQ(manager.Next(0), "WATCHDOG=1");
  EXPECT_EQ(watchdog.Turn(1040), 60);  // not due
  EXPECT_EQ(manager.Next(0), std::nullopt);
  watchdog.Turn(1100);
  EXPECT_EQ(manager.Next(0), "WATCHDOG=1");

  progress = {.age_ns = 5, .healthy = false, .detail = "stuck"};
  watchdog.Turn(1200);
  EXPECT_EQ(manager.Next(0), "STATUS=UNHEALTHY: stuck");
  watchdog.Turn(1300);
  EXPECT_EQ(manager.Next(0), std::nullopt);
  progress.detail = "stuck elsewhere";
  watchdog.Turn(1400);
  EXPECT_EQ(manager.Next(0), "STATUS=UNHEALTHY: stuck elsewhere");

  progress = {.age_ns = 0, .healthy = true, .detail = ""};
  watchdog.Turn(1500);
  EXPECT_EQ(manager.Next(0), "WATCHDOG=1");
  EXPECT_EQ(manager.Next(0), "STATUS=serving");
}

constexpr char kStalled[] = "a channel thread makes no progress";
constexpr int64_t kStallLimitNs = 1'000'000'000;

// A core with one channel thread, whose tasks hang until the gate opens, and all that tells of it.
class StalledDaemon {
 public:
  StalledDaemon() {
    CoreOptions options;
    options.channels = 1;
    options.stall_limit_ns = kStallLimitNs;
    options.inline_bytes = 0;
    const CoreHooks hooks = GateHooks(gate);
    env = std::make_unique<DaemonEnv>(options, &hooks);
    ControlServerOptions control;
    control.runtime_dir = env->runtime_dir();
    control.health_interval_ns = 10'000'000;
    auto server =
        ControlServer::Create(std::move(control), &env->core(), &env->settings(), &env->jobs());
    EXPECT_THAT(server, IsOk());
    control_server = *std::move(server);
  }
  std::string control_socket() const { return ControlSocketPath(env->runtime_dir()); }
  // Blocks until the channel thread has hung for longer than the limit, and from then on does.
  bool AwaitStall() {
    const int64_t end_ns = MonotonicNanos() + 20 * kStallLimitNs;
    while (env->core().GetProgress().detail != kStalled) {
      if (MonotonicNanos() > end_ns) return false;
      ::poll(nullptr, 0, 1);
    }
    return true;
  }

  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::unique_ptr<DaemonEnv> env;
  std::unique_ptr<ControlServer> control_server;
};

TEST(WatchdogTest, AWedgedChannelThreadStopsItAndTurnsHealthBad) {
  NotifySocket manager;
  StalledDaemon daemon;
  Watchdog watchdog([&] { return daemon.env->core().GetProgress(); }, 3);  // due at every turn
  EXPECT_TRUE(HealthBecomes(daemon.control_socket(), Health::kServing));
  watchdog.Turn(MonotonicNanos());
  EXPECT_EQ(manager.Next(0), "WATCHDOG=1");  // idle is healthy

  auto ranks = FormComm(daemon.env->socket_path(), 1);
  ASSERT_THAT(ranks, IsOk());
  auto& rank = (*ranks)[0];
  auto buffer = rank.client.Allocate(4096);
  ASSERT_THAT(buffer, IsOk());
  ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, 16, 0, 0)));
  ASSERT_TRUE(daemon.gate->AwaitEntered(1));
  ASSERT_TRUE(daemon.AwaitStall());
  ASSERT_TRUE(HealthBecomes(daemon.control_socket(), Health::kNotServing));
  const auto snapshot = daemon.env->core().GetSnapshot();  // what `spcclctl status` shows
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_FALSE(snapshot->core.healthy);
  EXPECT_EQ(snapshot->core.health_detail, kStalled);
  EXPECT_GE(snapshot->core.last_progress_age_ns, kStallLimitNs);
  manager.Clear();
  for (int turn = 0; turn < 5; ++turn) watchdog.Turn(MonotonicNanos());
  EXPECT_EQ(manager.Next(0), absl::StrCat("STATUS=UNHEALTHY: ", kStalled));
  EXPECT_EQ(manager.Next(0), std::nullopt);

  daemon.gate->Open();
  ASSERT_TRUE(rank.client.AwaitCompletion().has_value());
  EXPECT_TRUE(HealthBecomes(daemon.control_socket(), Health::kServing));
  watchdog.Turn(MonotonicNanos());
  EXPECT_EQ(manager.Next(0), "WATCHDOG=1");
}

}  // namespace
}  // namespace spccl::daemon
