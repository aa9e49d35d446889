// How the real spccld ends. What happens when its clients are killed: tests/fault.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/daemon_env.h"
#include "tests/support/frozen_threads.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::FormComm;
using ::spccl::testing::FrozenThreads;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::spccl::testing::SpawnedDaemon;

constexpr int64_t kPatienceMs = 30'000;

std::unique_ptr<SpawnedDaemon> StartDaemon(std::vector<std::string> flags = {}) {
  auto daemon = SpawnedDaemon::Start(std::move(flags));
  EXPECT_THAT(daemon, IsOk());
  return daemon.ok() ? *std::move(daemon) : nullptr;
}

TEST(SpccldTest, StopsOnSigtermAndTakesItsSocketsAway) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  auto client = RawClient::Open(daemon->socket_path());
  ASSERT_THAT(client, IsOk());
  daemon->Signal(SIGTERM);
  EXPECT_THAT(client->AwaitNotice(shm::ReplyType::kGoodbye), IsOk());
  EXPECT_TRUE(client->AwaitHangup());
  const auto code = daemon->Wait(kPatienceMs);
  ASSERT_THAT(code, IsOk());
  EXPECT_EQ(*code, 0) << daemon->ReadLog();
  EXPECT_NE(::access(daemon->socket_path().c_str(), F_OK), 0);
  EXPECT_NE(::access((daemon->runtime_dir() + "/control.sock").c_str(), F_OK), 0);
}

TEST(SpccldTest, WhatCannotBePrintedIsAFailure) {
  const auto self = std::filesystem::canonical("/proc/self/exe");
  const std::string binary = self.parent_path().parent_path() / "bin/spccld";
  for (const char* flag : {"--print-config", "--help", "--version"}) {
    const std::string command = binary + " " + flag + " 2>&1 >/dev/full";
    FILE* const errors = ::popen(command.c_str(), "r");
    ASSERT_NE(errors, nullptr);
    char text[256] = {};
    EXPECT_NE(std::fgets(text, sizeof text, errors), nullptr);
    EXPECT_EQ(WEXITSTATUS(::pclose(errors)), 2) << flag;
    EXPECT_THAT(text, ::testing::HasSubstr("standard output could not be written")) << flag;
  }
}

// Where any port will do, the log is where it is found.
TEST(SpccldTest, TheLogSaysWhereItListensForPeers) {
  if (!SPCCL_WITH_UCX) GTEST_SKIP() << "a build without UCX has no peers";
  const auto daemon = StartDaemon({"--peers-listen=127.0.0.1:0", "--peers-advertise=localhost:7"});
  if (daemon == nullptr) return;
  const std::string log = daemon->ReadLog();
  EXPECT_THAT(log, ::testing::ContainsRegex("listening for peers.*127.0.0.1:[1-9][0-9]*"));
  EXPECT_THAT(log, ::testing::HasSubstr("localhost:7"));
}

TEST(SpccldTest, ASecondSigtermStopsItAtOnceWhateverRuns) {
  const auto daemon = StartDaemon({"--stop-timeout", "10m"});
  ASSERT_NE(daemon, nullptr);
  FrozenThreads channels(daemon->pid(), "spccl-ch");
  if (channels.count() == 0) GTEST_SKIP() << "ptrace is not permitted here";
  auto ranks = FormComm(daemon->socket_path(), 1);
  ASSERT_THAT(ranks, IsOk());
  RawRank& rank = (*ranks)[0];
  constexpr uint64_t kCount = 1 << 20;  // too many for the core thread
  auto buffer = rank.client.Allocate(kCount * sizeof(float));
  ASSERT_THAT(buffer, IsOk());
  ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, kCount, 0, 0)));
  // What comes after it is answered: so it has been taken.
  ASSERT_THAT(rank.client.UniqueId(), IsOk());
  daemon->Signal(SIGTERM);
  EXPECT_THAT(rank.client.AwaitNotice(shm::ReplyType::kGoodbye), IsOk());
  EXPECT_FALSE(daemon->Wait(0).ok());
  daemon->Signal(SIGTERM);
  channels.AwaitEnd();
  const auto code = daemon->Wait(kPatienceMs);
  ASSERT_THAT(code, IsOk());
  EXPECT_EQ(*code, 3) << daemon->ReadLog();
}

}  // namespace
}  // namespace spccl::daemon
