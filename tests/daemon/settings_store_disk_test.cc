// What a store of settings does where its disk is full, fails, or holds it up.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <string>

#include "tests/daemon/file_traps.h"
#include "tests/daemon/settings_store_fixture.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::g_fsync_trap;
using ::spccl::testing::g_held;
using ::spccl::testing::g_rename_trap;
using ::spccl::testing::kDiedInTrap;
using ::spccl::testing::Trap;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using SettingsStoreDiskTest = SettingsStoreTest;

TEST_F(SettingsStoreDiskTest, AJobIsForgottenAlsoWhereTheDiskIsFull) {
  auto store = Open();
  ASSERT_TRUE(store->SetShare("j", {.weight = 2}).ok());
  ASSERT_TRUE(store->Set(JobScope{"j"}, Intra(0.5)).ok());
  ASSERT_TRUE(store->Set(JobScope{"other"}, Intra(0.5)).ok());
  const std::string in_the_way = folder_ + "/settings.toml.new";
  ASSERT_EQ(::mkdir(in_the_way.c_str(), 0755), 0);
  EXPECT_FALSE(store->ResetShare("j").ok());
  EXPECT_EQ(store->ShareOf("j").weight, 2u);
  EXPECT_FALSE(store->ForgetJob("j").ok());
  EXPECT_EQ(store->ShareOf("j"), JobShare{});
  EXPECT_EQ(store->Get(JobScope{"j"}), policy::Overrides{});
  // Once more, as it is not done; and when there is room again, for another job as well.
  EXPECT_FALSE(store->ForgetJob("j").ok());
  ASSERT_EQ(::rmdir(in_the_way.c_str()), 0);
  EXPECT_TRUE(store->ForgetJob("none").ok());
  store.reset();
  store = Open();
  EXPECT_EQ(store->ShareOf("j"), JobShare{});
  EXPECT_EQ(store->Get(JobScope{"j"}), policy::Overrides{});
  EXPECT_EQ(store->Get(JobScope{"other"}), Intra(0.5));
}

TEST_F(SettingsStoreDiskTest, TheLastJobIsForgottenOnAFullDiskToo) {
  auto store = Open();
  ASSERT_TRUE(store->SetShare("j", {.weight = 2}).ok());
  ASSERT_EQ(::mkdir((folder_ + "/settings.toml.new").c_str(), 0755), 0);
  EXPECT_TRUE(store->ForgetJob("j").ok());
  store.reset();
  EXPECT_EQ(Open()->ShareOf("j"), JobShare{});
}

TEST_F(SettingsStoreDiskTest, AShareIsTakenBackAlsoWhereTheDiskIsFull) {
  auto store = Open();
  ASSERT_TRUE(store->SetShare("j", {.max_operations = 7}).ok());
  const JobShareOverrides before = store->GetShare("j");
  ASSERT_TRUE(store->SetShare("j", {.weight = 2}).ok());
  ASSERT_EQ(::mkdir((folder_ + "/settings.toml.new").c_str(), 0755), 0);
  EXPECT_FALSE(store->RestoreShare("j", before).ok());
  EXPECT_EQ(store->GetShare("j"), before);
}

// As the core does, which must never wait for the disk.
TEST_F(SettingsStoreDiskTest, CommunicatorsWaitForNoWriter) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(CommScope{1}, Everything()).ok());
  for (std::atomic<Trap>* trap : {&g_fsync_trap, &g_rename_trap}) {
    g_held = 0;
    *trap = Trap::kHold;
    auto writer = std::async(std::launch::async, [&] {
      return store->Set(GlobalScope{}, Intra(trap == &g_fsync_trap ? 0.25 : 0.5));
    });
    g_held.wait(0);
    auto core = std::async(std::launch::async, [&] {
      store->Forget(1);
      EXPECT_TRUE(store->Set(CommScope{2}, Everything()).ok());
      EXPECT_TRUE(store->Set(CommScope{3}, Intra(0.75)).ok());
      EXPECT_TRUE(store->Reset(CommScope{3}).ok());
      EXPECT_EQ(store->Get(CommScope{1}), policy::Overrides{});
      EXPECT_EQ(store->Get(CommScope{2}), Everything());
      EXPECT_EQ(store->Resolve("j", 3).pici, policy::Settings{}.pici) << "the writer has not ended";
    });
    const std::future_status met = core.wait_for(std::chrono::seconds(20));
    *trap = Trap::kNone;
    trap->notify_all();
    EXPECT_EQ(met, std::future_status::ready);
    EXPECT_TRUE(writer.get().ok());
    core.get();
    ASSERT_TRUE(store->Reset(GlobalScope{}).ok());
  }
}

TEST_F(SettingsStoreDiskTest, ADeathBeforeTheRenameLeavesTheOldSettings) {
  ASSERT_TRUE(Open()->Set(GlobalScope{}, Intra(0.25)).ok());
  const std::string before = Content();
  for (std::atomic<Trap>* trap : {&g_rename_trap, &g_fsync_trap}) {
    EXPECT_EQ(InChild([&] {
                const auto store = Open();
                *trap = Trap::kDie;
                return store->Set(GlobalScope{}, Everything()).ok() ? 0 : 1;
              }),
              kDiedInTrap);
    EXPECT_TRUE(std::filesystem::exists(path() + ".new"));  // it did die with the work half done
    EXPECT_EQ(Content(), before);
    EXPECT_EQ(Open()->Get(GlobalScope{}), Intra(0.25));
  }
  // What the dead writer left is no obstacle.
  ASSERT_TRUE(Open()->Set(GlobalScope{}, Intra(0.5)).ok());
  EXPECT_EQ(Open()->Get(GlobalScope{}), Intra(0.5));
  EXPECT_FALSE(std::filesystem::exists(path() + ".new"));
}

TEST_F(SettingsStoreDiskTest, AFailedWriteChangesNothing) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(GlobalScope{}, Intra(0.25)).ok());
  const std::string before = Content();
  for (std::atomic<Trap>* trap : {&g_rename_trap, &g_fsync_trap}) {
    *trap = Trap::kFail;
    const absl::Status status = store->Set(GlobalScope{}, Everything());
    *trap = Trap::kNone;
    EXPECT_THAT(std::string(status.message()), StartsWith("settings not changed: "));
    EXPECT_EQ(store->Get(GlobalScope{}), Intra(0.25));
    EXPECT_EQ(Content(), before);
    EXPECT_FALSE(std::filesystem::exists(path() + ".new"));
  }
}

// Then the file has its new name already.
TEST_F(SettingsStoreDiskTest, AFolderThatIsNotSyncedChangesNothing) {
  auto store = Open();
  ASSERT_TRUE(store->Set(GlobalScope{}, Intra(0.25)).ok());
  const std::string before = Content();
  // The old content comes back at once, or, where that cannot be, with what is written next.
  for (const Trap rename_trap : {Trap::kNone, Trap::kFailAfter}) {
    g_fsync_trap = Trap::kFailFolder;
    g_rename_trap = rename_trap;
    const absl::Status status = store->Set(GlobalScope{}, Everything());
    g_fsync_trap = g_rename_trap = Trap::kNone;
    EXPECT_THAT(std::string(status.message()), StartsWith("settings not changed: sync " + folder_));
    EXPECT_EQ(store->Get(GlobalScope{}), Intra(0.25));
    EXPECT_EQ(Content() == before, rename_trap == Trap::kNone);
    EXPECT_TRUE(store->Reset(JobScope{"none"}).ok());
    EXPECT_EQ(Content(), before);
  }
}

TEST_F(SettingsStoreDiskTest, AFolderThatMayNotBeReadChangesNothing) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(GlobalScope{}, Intra(0.25)).ok());
  const std::string before = Content();
  ASSERT_EQ(::chmod(folder_.c_str(), 0333), 0);
  EXPECT_EQ(InChild([&] {
              if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 2;
              if (store->Set(GlobalScope{}, Everything()).code() !=
                  absl::StatusCode::kFailedPrecondition) {
                return 3;
              }
              return store->Get(GlobalScope{}) == Intra(0.25) ? 0 : 4;
            }),
            0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(Content(), before);
  EXPECT_FALSE(std::filesystem::exists(path() + ".new"));
}

TEST_F(SettingsStoreDiskTest, AFileThatCannotGrowChangesNothing) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(GlobalScope{}, Intra(0.25)).ok());
  const std::string before = Content();
  EXPECT_EQ(InChild([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {.rlim_cur = before.size(), .rlim_max = before.size()};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              if (store->Set(GlobalScope{}, Everything()).ok()) return 3;
              return store->Get(GlobalScope{}) == Intra(0.25) ? 0 : 4;
            }),
            0);
  EXPECT_EQ(Content(), before);
}

TEST_F(SettingsStoreDiskTest, AFolderThatMayNotBeWrittenChangesNothing) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(GlobalScope{}, Intra(0.25)).ok());
  const std::string before = Content();
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  EXPECT_EQ(InChild([&] {
              if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 2;
              if (store->Set(GlobalScope{}, Everything()).code() !=
                  absl::StatusCode::kFailedPrecondition) {
                return 3;
              }
              return store->Get(GlobalScope{}) == Intra(0.25) ? 0 : 4;
            }),
            0);
  EXPECT_EQ(Content(), before);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
}

}  // namespace
}  // namespace spccl::daemon
