#include "daemon/notify.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/notify_socket.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::NotifySocket;
using ::testing::MatchesRegex;

TEST(NotifyTest, TellsEachStateInTheProtocolsWords) {
  NotifySocket manager;
  notify::Ready("serving");
  EXPECT_EQ(manager.Next(0), "READY=1\nSTATUS=serving");
  notify::Watchdog();
  EXPECT_EQ(manager.Next(0), "WATCHDOG=1");
  notify::Reloading();
  EXPECT_THAT(manager.Next(0).value_or(""),
              MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+\nSTATUS=[a-z ]+"));
  notify::Stopping(2'500'000'000);
  EXPECT_THAT(manager.Next(0).value_or(""),
              MatchesRegex("STOPPING=1\nEXTEND_TIMEOUT_USEC=2500000\nSTATUS=[a-z: ]+"));
  notify::Status("x");
  EXPECT_EQ(manager.Next(0), "STATUS=x");
}

TEST(NotifyTest, KnowsHowLongTheManagerWaits) {
  EXPECT_EQ(notify::WatchdogLimitNanos(), 0);
  const NotifySocket manager(3'000'000'000);
  EXPECT_EQ(notify::WatchdogLimitNanos(), 3'000'000'000);
}

TEST(NotifyTest, WithoutAManagerNothingHappens) {
  notify::Ready("serving");
  notify::Watchdog();
}

}  // namespace
}  // namespace spccl::daemon
