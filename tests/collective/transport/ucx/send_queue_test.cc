#include "collective/transport/ucx/send_queue.h"

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::transport::ucx {
namespace {

using Share = std::shared_ptr<const LinkShare>;

Share Weighing(uint32_t weight) {
  auto share = std::make_shared<LinkShare>();
  share->weight = weight;
  return share;
}

Outgoing OfSize(const Share& share, uint64_t bytes, uint64_t index = 0) {
  Outgoing one;
  one.message.kind = MessageKind::kFrame;
  one.message.frame_bytes = bytes;
  one.message.index = index;
  one.share = share;
  return one;
}

// Pops until `bytes` have gone; jobs are filled up as long as they have room. By job.
std::map<const LinkShare*, double> Drain(SendQueue* queue, const std::vector<Share>& jobs,
                                         uint64_t bytes, std::mt19937_64* random) {
  std::map<const LinkShare*, double> gone;
  for (uint64_t all = 0; all < bytes;) {
    for (const Share& job : jobs) {
      while (queue->HasRoom(job)) queue->Push(OfSize(job, 1 + (*random)() % (256U << 10)));
    }
    const Outgoing one = queue->Pop();
    gone[one.share.get()] += static_cast<double>(one.message.frame_bytes);
    all += one.message.frame_bytes;
  }
  return gone;
}

TEST(SendQueueTest, BytesGoByWeightWhateverTheFramesSizes) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const Share one = Weighing(1), two = Weighing(2), five = Weighing(5);
  SendQueue queue;
  const auto gone = Drain(&queue, {one, two, five}, uint64_t{400} << 20, &random);
  EXPECT_NEAR(gone.at(two.get()) / gone.at(one.get()), 2, 0.2);
  EXPECT_NEAR(gone.at(five.get()) / gone.at(one.get()), 5, 0.5);
}

TEST(SendQueueTest, AJobThatComesLateIsNextAndGetsNoMoreThanItsShare) {
  std::mt19937_64 random(1);
  const Share early = Weighing(1), late = Weighing(1);
  SendQueue queue;
  Drain(&queue, {early}, uint64_t{100} << 20, &random);
  ASSERT_FALSE(queue.empty());
  queue.Push(OfSize(late, 64 << 10));
  EXPECT_EQ(queue.Pop().share, late);
  const auto gone = Drain(&queue, {early, late}, uint64_t{100} << 20, &random);
  EXPECT_NEAR(gone.at(late.get()) / gone.at(early.get()), 1, 0.1);
}

TEST(SendQueueTest, WhatNeedNotWaitIsCharged) {
  const Share busy = Weighing(1), other = Weighing(1);
  SendQueue queue;
  for (int i = 0; i < 4; ++i) {
    queue.Charge(busy, 1000);
    queue.Charge(other, 10);
  }
  queue.Push(OfSize(busy, 10));
  queue.Push(OfSize(other, 10));
  EXPECT_EQ(queue.Pop().share, other);
}

TEST(SendQueueTest, AJobsFramesKeepTheirOrder) {
  const Share a = Weighing(1), b = Weighing(3);
  SendQueue queue;
  for (uint64_t i = 0; i < 50; ++i) {
    queue.Push(OfSize(a, 100, i));
    queue.Push(OfSize(b, 100, i));
  }
  std::map<const LinkShare*, uint64_t> next;
  while (!queue.empty()) {
    const Outgoing one = queue.Pop();
    EXPECT_EQ(one.message.index, next[one.share.get()]++);
  }
  EXPECT_EQ(next[a.get()], 50u);
  EXPECT_EQ(next[b.get()], 50u);
}

TEST(SendQueueTest, WhoWaitsIsToldOnceWhenHalfIsGone) {
  const Share job = Weighing(1), other = Weighing(1);
  SendQueue queue;
  EXPECT_TRUE(queue.HasRoom(job));
  constexpr uint64_t kFrame = SendQueue::kEnoughBytes / 4;
  for (int i = 0; i < 4; ++i) queue.Push(OfSize(job, kFrame));
  EXPECT_FALSE(queue.TakeWanted());  // nobody has asked
  EXPECT_FALSE(queue.HasRoom(job));
  EXPECT_TRUE(queue.HasRoom(other));  // its own frames are none
  queue.Pop();
  EXPECT_FALSE(queue.TakeWanted());
  queue.Pop();
  EXPECT_TRUE(queue.TakeWanted());
  EXPECT_FALSE(queue.TakeWanted());
  EXPECT_TRUE(queue.HasRoom(job));
}

}  // namespace
}  // namespace spccl::transport::ucx
