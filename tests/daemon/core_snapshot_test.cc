// Snapshots that several ask for at the same time.
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/daemon/open_client.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::DaemonEnv;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawClient;

// Asks for snapshots all the time.
class Askers {
 public:
  Askers(DaemonEnv& env, int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, &env] {
        while (!stop_) EXPECT_THAT(env.core().GetSnapshot(), IsOk());
      });
    }
  }
  ~Askers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

TEST(CoreSnapshotTest, WhoSharesOneWithOthersSeesWhatWasBeforeTheCall) {
  DaemonEnv env;
  std::vector<RawClient> clients;
  const Askers askers(env, 3);
  for (size_t count = 1; count <= 50; ++count) {
    clients.push_back(Open(env));
    const auto snapshot = env.core().GetSnapshot();
    ASSERT_THAT(snapshot, IsOk());
    ASSERT_EQ(snapshot->core.sessions, count);
  }
}

TEST(CoreSnapshotTest, BeforeItIsAnsweredASubscriptionHasTheEventsThatAreKept) {
  DaemonEnv env;
  std::vector<RawClient> clients;
  const Askers askers(env, 3);
  for (size_t count = 1; count <= 50; ++count) {
    clients.push_back(Open(env));
    std::atomic<size_t> told = 0;
    const auto subscription = env.core().Subscribe(1, [&](const EventPtr&) { ++told; });
    ASSERT_THAT(env.core().GetSnapshot(), IsOk());
    ASSERT_EQ(told, count);
  }
}

}  // namespace
}  // namespace spccl::daemon
