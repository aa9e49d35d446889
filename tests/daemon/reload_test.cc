#include "daemon/reload.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ReloadTest, WhatIsLiveIsAKnownField) {
  std::set<std::string> live;
  for (const FieldInfo& field : ConfigFields()) {
    if (IsLive(field.name)) live.insert(field.name);
  }
  EXPECT_EQ(live.size(), 9u + 5 + 2 + 6) << "a live field is unknown, or one is new: list it here";
  EXPECT_TRUE(live.count("log.level"));
  EXPECT_TRUE(live.count("thresholds.coo.ag"));
  EXPECT_FALSE(live.count("runtime_dir"));
}

TEST(ReloadTest, AFileThatIsGoneChangesNothing) {
  const CommandLine with{.file = "/etc/spccl/spccld.toml"}, without;
  EXPECT_EQ(
      CheckReload(with, without).message(),
      "/etc/spccl/spccld.toml is not there any more: a restart without it takes the defaults");
  EXPECT_TRUE(CheckReload(without, without).ok());
  EXPECT_TRUE(CheckReload(without, with).ok());
  EXPECT_TRUE(CheckReload(with, with).ok());
}

TEST(ReloadTest, NamesTheFieldsThatTakeARestart) {
  const Config now;
  Config next = now;
  EXPECT_THAT(FieldsThatNeedRestart(now, next), IsEmpty());
  next.log_level = LogLevel::kDebug;
  next.settings.pici.intra = 0.25;
  next.max_sessions = 3;
  next.job_share.weight = 2;
  EXPECT_THAT(FieldsThatNeedRestart(now, next), IsEmpty());
  next.channels = 7;
  next.peers_munge = true;
  EXPECT_THAT(FieldsThatNeedRestart(now, next), ElementsAre("channels", "peers.munge"));
}

}  // namespace
}  // namespace spccl::daemon
