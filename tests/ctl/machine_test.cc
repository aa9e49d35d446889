#include "ctl/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/ctl/fake_machine.h"

namespace spccl::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MachineTest, ReadsHeadsAndTails) {
  const FakeMachine fake;
  const std::string path = fake.Put("/a", "0123456789");
  uint64_t total = 0;
  EXPECT_EQ(ReadFile(path, 4).value(), "0123");
  EXPECT_EQ(ReadFile(path, 4, Part::kTail, &total).value(), "6789");
  EXPECT_EQ(total, 10u);
  EXPECT_EQ(ReadFile(path, 100, Part::kTail, &total).value(), "0123456789");
  EXPECT_EQ(total, 10u);
  EXPECT_EQ(ReadFile(fake.Put("/empty", ""), 4).value(), "");
  EXPECT_TRUE(absl::IsNotFound(ReadFile(fake.root + "/none", 4).status()));
  EXPECT_FALSE(ReadFile(fake.root, 4).ok());    // a folder
  EXPECT_FALSE(ReadFile("/dev/zero", 4).ok());  // what never ends
  fake.Link("/link", path);
  EXPECT_EQ(ReadFile(fake.root + "/link", 4).value(), "0123");
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadFile(fake.root + "/link", 4, Part::kHead, nullptr, Links::kRefuse).status()));
}

TEST(MachineTest, WhatTheKernelSaysOfThisProcess) {
  const Machine machine;
  EXPECT_TRUE(MemlockOf(machine, ::getpid()).has_value());
  EXPECT_TRUE(CapabilitiesOf(machine, ::getpid()).has_value());
  EXPECT_THAT(ArgumentsOf(machine, ::getpid()).value().front(), HasSubstr("/tests/ctl_"));
  EXPECT_FALSE(EnvironmentOf(machine, ::getpid()).value().empty());
  EXPECT_EQ(HoldsSocket(machine, ::getpid(), 1), false);
}

TEST(MachineTest, WhatCannotBeReadIsNotThere) {
  const FakeMachine fake;
  EXPECT_FALSE(MemlockOf(fake.machine, 7).has_value());
  EXPECT_FALSE(CapabilitiesOf(fake.machine, 7).has_value());
  EXPECT_FALSE(ArgumentsOf(fake.machine, 7).has_value());
  EXPECT_FALSE(EnvironmentOf(fake.machine, 7).has_value());
  EXPECT_FALSE(HoldsSocket(fake.machine, 7, 1).has_value());
  EXPECT_TRUE(TcpListenersOf(fake.machine, 7).empty());
  EXPECT_EQ(FirstLine(fake.root + "/none"), "");
  EXPECT_TRUE(NamesIn(fake.root + "/none").empty());
}

TEST(MachineTest, Limits) {
  const FakeMachine fake;
  fake.Put("/proc/7/limits", "Max locked memory         unlimited            unlimited  bytes\n");
  EXPECT_EQ(MemlockOf(fake.machine, 7), RLIM_INFINITY);
}

TEST(MachineTest, Paths) {
  const FakeMachine fake;
  const std::string path = fake.Put("/a", "x");
  std::filesystem::permissions(path, std::filesystem::perms(0604));
  const PathFacts facts = FactsOf(path);
  EXPECT_EQ(facts.error, 0);
  EXPECT_EQ(ModeText(facts.mode), "0604");
  EXPECT_EQ(facts.uid, ::geteuid());
  EXPECT_EQ(FactsOf(path + "/none").error, ENOTDIR);
  EXPECT_EQ(UserText(0), "0 (root)");
  EXPECT_EQ(UserText(3'000'000'000), "3000000000");
  EXPECT_THAT(NamesIn(fake.root + "/dev"), ElementsAre("shm"));
}

}  // namespace
}  // namespace spccl::ctl
