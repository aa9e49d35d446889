#include "base/futex.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/memory.h"
#include "gtest/gtest.h"

namespace spccl {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Waits, at most a minute in all, until *word is no longer `from`. False when time ran out.
bool WaitWhile(std::atomic<uint32_t>* word, uint32_t from) {
  while (word->load(std::memory_order_acquire) == from) {
    if (!FutexWait(word, from, 60 * kSecond)) return false;
  }
  return true;
}

TEST(FutexTest, ReturnsAtOnceWhenTheValueDiffers) {
  std::atomic<uint32_t> word{1};
  EXPECT_TRUE(FutexWait(&word, 0, -1));
}

TEST(FutexTest, TimesOutNoSoonerThanAsked) {
  std::atomic<uint32_t> word{0};
  const int64_t start_ns = MonotonicNanos();
  bool woken = true;
  // An early return for no reason is allowed; it must not look like a time-out.
  while (woken) woken = FutexWait(&word, 0, 5'000'000);
  EXPECT_GE(MonotonicNanos() - start_ns, 5'000'000);
}

TEST(FutexTest, ZeroDoesNotWait) {
  std::atomic<uint32_t> word{0};
  EXPECT_FALSE(FutexWait(&word, 0, 0));
}

TEST(FutexTest, WakesEveryThreadThatWaits) {
  std::atomic<uint32_t> word{0};
  std::atomic<int> failures{0};
  {
    std::jthread waiters[3];
    for (auto& waiter : waiters) {
      waiter = std::jthread([&] { failures += WaitWhile(&word, 0) ? 0 : 1; });
    }
    word.store(1, std::memory_order_release);
    FutexWakeAll(&word);
  }
  EXPECT_EQ(failures.load(), 0);
}

// Ping-pong through a shared mapping: each side wakes the other, a process apart.
TEST(FutexTest, WakesAcrossProcesses) {
  auto fd = CreateSealedMemfd("futex-test", 4096);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto mapping = SharedMapping::Create(fd->get(), 4096);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  auto* word = new (mapping->data()) std::atomic<uint32_t>{0};
  constexpr uint32_t kRounds = 200;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (!WaitWhile(word, 2 * round)) ::_exit(1);
      word->store(2 * round + 2, std::memory_order_release);
      FutexWakeAll(word);
    }
    ::_exit(0);
  }
  for (uint32_t round = 0; round < kRounds; ++round) {
    word->store(2 * round + 1, std::memory_order_release);
    FutexWakeAll(word);
    ASSERT_TRUE(WaitWhile(word, 2 * round + 1)) << "round " << round;
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace spccl
