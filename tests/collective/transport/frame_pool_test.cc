#include "collective/transport/frame_pool.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace spccl::transport {
namespace {

TEST(FramePoolTest, GivesAlignedRoomAndTakesItBack) {
  FramePool pool(1 << 20);
  std::byte* data;
  {
    Frame frame = pool.Take(5000);
    data = frame.data();
    EXPECT_GE(frame.capacity_bytes(), 5000U);
    EXPECT_EQ(frame.size_bytes(), 0U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
    std::memset(data, 1, frame.capacity_bytes());
    EXPECT_EQ(pool.kept_bytes(), 0U);
  }
  EXPECT_EQ(pool.kept_bytes(), 8192U);
  EXPECT_EQ(pool.Take(8192).data(), data);
}

TEST(FramePoolTest, KeepsNoMoreThanItMay) {
  FramePool pool(3000);
  {
    std::vector<Frame> frames;
    for (int i = 0; i < 10; ++i) frames.push_back(pool.Take(1));
  }
  EXPECT_EQ(pool.kept_bytes(), 2048U);
}

TEST(FramePoolTest, GivesUpWhatItKeepsButNotWhatIsOut) {
  FramePool pool(1 << 20);
  Frame out = pool.Take(5000);
  std::memset(out.data(), 7, 5000);
  pool.Take(100'000);
  EXPECT_GT(pool.kept_bytes(), 0U);
  pool.Trim();
  EXPECT_EQ(pool.kept_bytes(), 0U);
  EXPECT_EQ(out.data()[4999], std::byte{7});
  out = Frame();
  EXPECT_EQ(pool.kept_bytes(), 8192U);
  EXPECT_TRUE(pool.Take(100'000).valid());
}

TEST(FramePoolTest, MovesAndEmptyFrames) {
  FramePool pool(1 << 20);
  Frame a = pool.Take(100);
  a.set_size_bytes(70);
  std::byte* const data = a.data();
  Frame b = std::move(a);
  EXPECT_FALSE(a.valid());  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size_bytes(), 70U);
  b = pool.Take(100);
  EXPECT_EQ(pool.kept_bytes(), 1024U);  // the first one came back
  EXPECT_TRUE(pool.Take(0).valid());
}

TEST(FramePoolTest, SeveralThreads) {
  FramePool pool(1 << 16);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        Frame frame = pool.Take(100 + static_cast<size_t>(i));
        *frame.data() = static_cast<std::byte>(t);
        ASSERT_EQ(*frame.data(), static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool.kept_bytes(), size_t{1} << 16);
}

TEST(FramePoolTest, TheLastOwnerGivesTheBufferBack) {
  FramePool pool(size_t{1} << 20);
  Frame first = pool.Take(1000);
  first.set_size_bytes(77);
  EXPECT_TRUE(first.unique());
  Frame second = first.Share();
  EXPECT_EQ(second.data(), first.data());
  EXPECT_EQ(second.size_bytes(), 77);
  EXPECT_FALSE(first.unique());
  first = Frame();
  EXPECT_EQ(pool.kept_bytes(), 0);
  EXPECT_TRUE(second.unique());
  const std::byte* const data = second.data();
  second = Frame();
  EXPECT_EQ(pool.kept_bytes(), 1024);
  EXPECT_EQ(pool.Take(1000).data(), data);
}

TEST(FramePoolTest, TheMeterRunsWhileAnOwnerThatItWatchesIsThere) {
  const auto meter = std::make_shared<BusyMeter>();
  EXPECT_EQ(meter->busy_ns(), 0);
  FramePool pool(1024);
  const auto runs = [&] {
    const uint64_t before = meter->busy_ns();
    const int64_t start_ns = MonotonicNanos();
    while (MonotonicNanos() - start_ns < 1000) {
    }
    return meter->busy_ns() != before;
  };
  Frame first = pool.Take(64), second = first.Share();
  EXPECT_FALSE(runs());
  first.Meter(meter);
  second.Meter(meter);
  Frame moved = std::move(first);
  EXPECT_TRUE(runs());
  moved = Frame();
  EXPECT_TRUE(runs());
  Frame other = second.Share();
  second = Frame();
  EXPECT_FALSE(runs());
  EXPECT_GE(meter->busy_ns(), 2000);
}

TEST(FramePoolTest, OwnersOnSeveralThreads) {
  FramePool pool(size_t{1} << 20);
  for (int round = 0; round < 200; ++round) {
    Frame frame = pool.Take(64);
    frame.data()[0] = std::byte{1};
    std::thread reader([other = frame.Share()] { EXPECT_EQ(other.data()[0], std::byte{1}); });
    while (!frame.unique()) std::this_thread::yield();
    frame.data()[0] = std::byte{2};
    reader.join();
  }
  EXPECT_EQ(pool.kept_bytes(), 1024);
}

}  // namespace
}  // namespace spccl::transport
