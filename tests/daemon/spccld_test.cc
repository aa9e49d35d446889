// The real spccld, with clients that are processes of their own, and are killed for real.
#include <dirent.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "tests/support/daemon_env.h"
#include "tests/support/multi_process.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::AllSucceeded;
using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::MultiProcess;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::spccl::testing::SpawnedDaemon;
using ::testing::HasSubstr;

constexpr uint64_t kCount = 1 << 18;
constexpr int64_t kPatienceMs = 30'000;

std::unique_ptr<SpawnedDaemon> StartDaemon(std::vector<std::string> flags = {}) {
  auto daemon = SpawnedDaemon::Start(std::move(flags));
  EXPECT_THAT(daemon, IsOk());
  return daemon.ok() ? *std::move(daemon) : nullptr;
}

std::string NewUniqueId(const SpawnedDaemon& daemon) {
  auto client = RawClient::Open(daemon.socket_path());
  EXPECT_THAT(client, IsOk());
  auto unique_id = client->UniqueId();
  EXPECT_THAT(unique_id, IsOk());
  return *unique_id;
}

// What the daemon holds for its clients.
struct Holdings {
  size_t descriptors = 0, memfds = 0;
  bool operator==(const Holdings&) const = default;
};

Holdings HoldingsOf(pid_t pid) {
  Holdings holdings;
  DIR* const folder = ::opendir(absl::StrCat("/proc/", pid, "/fd").c_str());
  while (folder != nullptr && ::readdir(folder) != nullptr) ++holdings.descriptors;
  if (folder != nullptr) ::closedir(folder);
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    holdings.memfds += line.find("/memfd:") != std::string::npos;
  }
  return holdings;
}

// The holdings while it has no client: twice the same in a row, and nothing mapped.
Holdings IdleHoldings(pid_t pid) {
  const int64_t deadline_ns = MonotonicNanos() + kPatienceMs * 1'000'000;
  Holdings last, now = HoldingsOf(pid);
  do {
    last = now;
    ::poll(nullptr, 0, 100);
    now = HoldingsOf(pid);
  } while ((now.memfds != 0 || !(now == last)) && MonotonicNanos() < deadline_ns);
  return now;
}

// The holdings once they are as before; the last ones seen if they do not get there.
Holdings AwaitHoldings(pid_t pid, const Holdings& before) {
  const int64_t deadline_ns = MonotonicNanos() + kPatienceMs * 1'000'000;
  Holdings now = HoldingsOf(pid);
  while (!(now == before) && MonotonicNanos() < deadline_ns) {
    ::poll(nullptr, 0, 5);
    now = HoldingsOf(pid);
  }
  return now;
}

// In a rank's process: joins, and all-reduces until `stop_file` is there or something fails.
// Reports "running" after the first operation. 0: stopped; 1: failed, and the message was reported.
int RunRank(const std::string& socket_path, const std::string& unique_id, uint32_t ranks,
            uint32_t rank_number, const std::string& stop_file,
            const MultiProcess::Report& report) {
  auto client = RawClient::Open(socket_path);
  if (!client.ok()) return 2;
  const auto reply = client->Call(client->MakeCommInit(unique_id, ranks, rank_number));
  if (!reply.ok() || reply->result != 0) return 3;
  auto buffer = client->Allocate(2 * kCount * sizeof(float));
  if (!buffer.ok()) return 4;
  RawRank rank{.client = *std::move(client), .handle = static_cast<uint32_t>(reply->value)};
  for (int i = 0;; ++i) {
    // The flag travels as part of the sum, so that all ranks stop after the same operation.
    buffer->as<float>()[0] = ::access(stop_file.c_str(), F_OK) == 0 ? 1.0f : 0.0f;
    rank.client.Push(AllReduceSlot(rank, *buffer, kCount, 0, kCount * sizeof(float)));
    const auto completion = rank.client.AwaitCompletion(kPatienceMs);
    if (!completion) return 5;
    if (completion->result != 0) {
      report(absl::StrCat("failed: ", completion->message, "\n"));
      return 1;
    }
    if (i == 0) report("running\n");
    if (buffer->as<float>(kCount * sizeof(float))[0] != 0.0f) return 0;
  }
}

MultiProcess StartRanks(const SpawnedDaemon& daemon, int ranks, const std::string& stop_file) {
  const std::string unique_id = NewUniqueId(daemon);
  return MultiProcess(
      ranks, [=, path = daemon.socket_path()](int rank, const MultiProcess::Report& report) {
        ::setsid();  // a job of its own
        return RunRank(path, unique_id, ranks, rank, stop_file, report);
      });
}

TEST(SpccldTest, AKilledRankIsNamedToTheOthersWithinASecondAndOtherJobsGoOn) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  const Holdings before = IdleHoldings(daemon->pid());
  const std::string stop_file = daemon->runtime_dir() + "/stop";
  MultiProcess others = StartRanks(*daemon, 2, stop_file);
  MultiProcess ranks = StartRanks(*daemon, 3, stop_file);
  for (int r = 0; r < 3; ++r) ASSERT_TRUE(ranks.AwaitReport(r, "running", kPatienceMs));
  for (int r = 0; r < 2; ++r) ASSERT_TRUE(others.AwaitReport(r, "running", kPatienceMs));
  const int64_t killed_ns = MonotonicNanos();
  ranks.Kill(1, SIGKILL);
  const std::string culprit = absl::StrCat("rank 1 (pid ", ranks.pid(1), ")");
  for (const int r : {0, 2}) EXPECT_TRUE(ranks.AwaitReport(r, culprit, kPatienceMs));
  EXPECT_LT(MonotonicNanos() - killed_ns, 1'000'000'000);
  std::ofstream(stop_file).put('x');
  EXPECT_TRUE(AllSucceeded(others.Wait(kPatienceMs)));
  ranks.Wait(kPatienceMs);
  EXPECT_EQ(AwaitHoldings(daemon->pid(), before), before);
}

TEST(SpccldTest, AStoppedClientIsNamedWhenTheTimeIsUp) {
  const auto daemon = StartDaemon({"--op-timeout", "300ms"});
  ASSERT_NE(daemon, nullptr);
  MultiProcess ranks = StartRanks(*daemon, 2, "/nowhere");
  for (int r = 0; r < 2; ++r) ASSERT_TRUE(ranks.AwaitReport(r, "running", kPatienceMs));
  ranks.Kill(1, SIGSTOP);
  EXPECT_TRUE(ranks.AwaitReport(0, absl::StrCat("waiting for rank 1 (pid ", ranks.pid(1), ")"),
                                kPatienceMs));
}

TEST(SpccldTest, AThousandClientsThatDieLeaveNothing) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  const Holdings before = IdleHoldings(daemon->pid());
  for (int i = 0; i < 1000; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto client = RawClient::Open(daemon->socket_path());
      if (!client.ok()) ::_exit(1);
      if (i % 2 == 0 && !client->Allocate(1 << 16).ok()) ::_exit(2);
      // A communicator that will never be full, or an operation that will never run.
      const auto unique_id = client->UniqueId();
      if (!unique_id.ok()) ::_exit(3);
      if (i % 3 == 0 && !client->Send(client->MakeCommInit(*unique_id, 2, 0)).ok()) ::_exit(4);
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "client " << i << " exited " << WEXITSTATUS(status);
  }
  EXPECT_EQ(AwaitHoldings(daemon->pid(), before), before);
}

TEST(SpccldTest, ItsDeathReachesWaitingClientsWithinASecond) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  auto ranks = FormComm(daemon->socket_path(), 2);
  ASSERT_THAT(ranks, IsOk());
  auto buffer = (*ranks)[0].client.Allocate(4096);
  ASSERT_THAT(buffer, IsOk());
  ASSERT_TRUE((*ranks)[0].client.Push(AllReduceSlot((*ranks)[0], *buffer, 10, 0, 2048)));
  daemon->Signal(SIGKILL);
  EXPECT_TRUE((*ranks)[0].client.AwaitHangup(1000));
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

// Memory whose pages never come: who reads it waits for as long as we live.
void* MemoryThatNeverAnswers(size_t bytes, UniqueFd* userfault) {
  userfault->Reset(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!userfault->valid()) return nullptr;
  uffdio_api api{};
  api.api = UFFD_API;
  if (::ioctl(userfault->get(), UFFDIO_API, &api) != 0) return nullptr;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_register range{};
  range.range.start = reinterpret_cast<uint64_t>(memory);
  range.range.len = bytes;
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ::ioctl(userfault->get(), UFFDIO_REGISTER, &range) == 0 ? memory : nullptr;
}

TEST(SpccldTest, ASecondSigtermStopsItAtOnceWhateverRuns) {
  const auto daemon = StartDaemon({"--stop-timeout", "10m"});
  ASSERT_NE(daemon, nullptr);
  UniqueFd userfault;
  const void* const memory = MemoryThatNeverAnswers(4096, &userfault);
  if (memory == nullptr) GTEST_SKIP() << "userfaultfd is not permitted here";
  auto ranks = FormComm(daemon->socket_path(), 1);
  ASSERT_THAT(ranks, IsOk());
  RawRank& rank = (*ranks)[0];
  auto buffer = rank.client.Allocate(4096);
  ASSERT_THAT(buffer, IsOk());
  shm::Submission slot = AllReduceSlot(rank, *buffer, 16, 0, 0);
  slot.send = {.buffer_id = shm::kRawAddress, .offset = reinterpret_cast<uint64_t>(memory)};
  ASSERT_TRUE(rank.client.Push(slot));
  // The fault is reported here once the daemon reads.
  pollfd query{.fd = userfault.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&query, 1, kPatienceMs), 1);
  daemon->Signal(SIGTERM);
  EXPECT_THAT(rank.client.AwaitNotice(shm::ReplyType::kGoodbye), IsOk());
  EXPECT_FALSE(daemon->Wait(0).ok());
  daemon->Signal(SIGTERM);
  const auto code = daemon->Wait(kPatienceMs);
  ASSERT_THAT(code, IsOk());
  EXPECT_EQ(*code, 3) << daemon->ReadLog();
}

}  // namespace
}  // namespace spccl::daemon
