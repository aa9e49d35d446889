#include "collective/runtime/host/relay_task.h"

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {
namespace {

using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::FirstDifference;
using spccl::testing::RandomElements;
using spccl::testing::ResultBox;
using spccl::testing::RunTask;
using spccl::testing::ScratchMemory;

constexpr size_t kSlotBytes = 256;
constexpr uint64_t kSlots = 3;

// A rank that lives in this process: Rank() plays the rank's process.
class FakeRelay final : public SliceRelay {
 public:
  size_t slot_bytes() const override { return kSlotBytes; }
  bool IsHere(uint64_t slice) const override { return turns_[slice % kSlots] == 2 * slice + 1; }
  bool Await(uint64_t slice, int64_t until_ns) override {
    while (!IsHere(slice) && MonotonicNanos() < until_ns) std::this_thread::yield();
    return IsHere(slice);
  }
  bool AskForNudge(uint64_t slice) override {
    waits_ = true;
    return IsHere(slice);
  }
  std::byte* Slot(uint64_t slice) override { return memory_ + slice % kSlots * kSlotBytes; }
  void HandBack(uint64_t slice) override { turns_[slice % kSlots] = 2 * slice + 2; }
  void Decline() override { declined_ = true; }

  bool declined() const { return declined_; }
  void HandOver(uint64_t slice, const std::byte* from, size_t bytes, Task* task) {
    std::memcpy(Slot(slice), from, bytes);
    turns_[slice % kSlots] = 2 * slice + 1;
    if (waits_.exchange(false)) task->Nudge();
  }
  // All of `data`, in place.
  void Rank(Bytes* data, Task* task) {
    const uint64_t slices = (data->size() + kSlotBytes - 1) / kSlotBytes;
    const auto size_of = [&](uint64_t s) {
      return std::min(kSlotBytes, data->size() - s * kSlotBytes);
    };
    uint64_t over = 0;
    for (uint64_t back = 0; back < slices; ++back) {
      for (; over < std::min(slices, back + kSlots); ++over) {
        HandOver(over, data->data() + over * kSlotBytes, size_of(over), task);
      }
      while (turns_[back % kSlots] != 2 * back + 2) std::this_thread::yield();
      std::memcpy(data->data() + back * kSlotBytes, Slot(back), size_of(back));
    }
  }

 private:
  alignas(64) std::byte memory_[kSlots * kSlotBytes];
  std::atomic<uint64_t> turns_[kSlots] = {};
  std::atomic<bool> waits_{false};
  std::atomic<bool> declined_{false};
};

std::vector<std::shared_ptr<SliceRelay>> Relays(uint32_t ranks) {
  std::vector<std::shared_ptr<SliceRelay>> relays;
  for (uint32_t rank = 0; rank < ranks; ++rank) relays.push_back(std::make_shared<FakeRelay>());
  return relays;
}

FakeRelay& At(const std::vector<std::shared_ptr<SliceRelay>>& relays, uint32_t rank) {
  return static_cast<FakeRelay&>(*relays[rank]);
}

TEST(RelayTaskTest, EveryTypeAndReduction) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      const OpDesc op{.kind = OpKind::kAllReduce,
                      .dtype = static_cast<DType>(dtype),
                      .redop = static_cast<RedOp>(redop),
                      .count = 1 + random() % 1500};
      const auto ranks = static_cast<uint32_t>(1 + random() % 4);
      const int threads = static_cast<int>(1 + random() % 3);
      SCOPED_TRACE(absl::StrCat("dtype ", dtype, " redop ", redop, " count ", op.count, " ranks ",
                                ranks, " threads ", threads));
      std::vector<Bytes> data;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        data.push_back(RandomElements(op.dtype, op.count, 0.3, false, &random));
      }
      const std::vector<Bytes> expected = CollectiveOracle(op, data);
      const auto relays = Relays(ranks);
      ResultBox box;
      RelayTask task(op, relays, box.Fn());
      std::vector<std::thread> processes;
      std::thread channels([&] { RunTask(&task, threads); });
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        processes.emplace_back([&, rank] { At(relays, rank).Rank(&data[rank], &task); });
      }
      for (std::thread& process : processes) process.join();
      channels.join();
      EXPECT_EQ(box.calls(), 1);
      EXPECT_TRUE(box.result()->status.ok());
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(FirstDifference(op.dtype, expected[rank], data[rank]), std::nullopt) << rank;
      }
    }
  }
}

TEST(RelayTaskTest, WaitsForTheLastRanksSliceAndIsNudgedForIt) {
  const OpDesc op{.kind = OpKind::kAllReduce, .dtype = DType::kUint8, .count = 10};
  const auto relays = Relays(2);
  ResultBox box;
  RelayTask task(op, relays, box.Fn());
  int wakes = 0;
  task.SetWaker([&wakes] { ++wakes; });
  ScratchMemory scratch;
  const Bytes ones(10, std::byte{1});
  At(relays, 0).HandOver(0, ones.data(), 10, &task);
  EXPECT_EQ(wakes, 0);
  EXPECT_EQ(task.RunOne(scratch.span()), Progress::kIdle);
  At(relays, 1).HandOver(0, ones.data(), 10, &task);
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(box.calls(), 0);
  EXPECT_EQ(task.RunOne(scratch.span()), Progress::kDone);
  EXPECT_EQ(box.calls(), 1);
  EXPECT_EQ(At(relays, 1).Slot(0)[9], std::byte{2});
}

TEST(RelayTaskTest, CancelEndsAnOperationWhoseSlicesDoNotCome) {
  const OpDesc op{.kind = OpKind::kAllReduce, .dtype = DType::kUint8, .count = 1000};
  const auto relays = Relays(2);
  ResultBox box;
  RelayTask task(op, relays, box.Fn());
  ScratchMemory scratch;
  EXPECT_EQ(task.RunOne(scratch.span()), Progress::kIdle);
  task.Cancel(absl::AbortedError("rank 1 has ended"), 1);
  ASSERT_EQ(box.calls(), 1);
  EXPECT_EQ(box.result()->status, absl::AbortedError("rank 1 has ended"));
  EXPECT_EQ(box.result()->culprit_rank, 1);
  task.Cancel(absl::AbortedError("again"), 0);
  EXPECT_EQ(box.calls(), 1);
  EXPECT_EQ(task.RunOne(scratch.span()), Progress::kDone);
}

}  // namespace
}  // namespace spccl::runtime
