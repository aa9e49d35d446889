#include "daemon/submission_check.h"

#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/order.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::FailsWith;
using ::testing::HasSubstr;

constexpr uint32_t kHandle = 7, kHandleWithRelays = 9, kRanks = 4, kRank = 2;
constexpr uint64_t kBuffer = 11, kSameMemory = 12, kOther = 13, kSize = 1 << 20;
constexpr uint64_t kGpuBuffer = 14, kOtherGpuBuffer = 15;

SlotCheck Check(const shm::Submission& slot, bool attach = true) {
  const auto member = [](uint32_t handle) -> std::optional<MemberView> {
    if (handle != kHandle && handle != kHandleWithRelays) return std::nullopt;
    return MemberView{.ranks = kRanks, .rank = kRank, .has_relays = handle == kHandleWithRelays};
  };
  const auto buffer = [](uint64_t id) -> std::optional<BufferView> {
    if (id == kBuffer || id == kSameMemory) {
      return BufferView{.size_bytes = kSize, .memory_id = 1, .mapped = true};
    }
    if (id == kGpuBuffer || id == kOtherGpuBuffer) {
      return BufferView{.size_bytes = kSize, .memory_id = id, .mapped = false, .on_gpu = true};
    }
    if (id == kOther) return BufferView{.size_bytes = kSize, .memory_id = 2, .mapped = true};
    return std::nullopt;
  };
  return CheckSubmission(slot, {.member = member,
                                .buffer = buffer,
                                .has_order = slot.comm_id != kHandleWithRelays,
                                .attach_possible = attach});
}

shm::Submission Slot(OpKind op, uint64_t count, uint64_t send, uint64_t recv) {
  shm::Submission slot{};
  slot.comm_id = kHandle;
  slot.op = static_cast<uint8_t>(op);
  slot.dtype = static_cast<uint8_t>(DType::kFloat32);
  slot.count = count;
  slot.send = {.buffer_id = kBuffer, .offset = send};
  slot.recv = {.buffer_id = kBuffer, .offset = recv};
  return slot;
}

void ExpectTaken(const shm::Submission& slot) {
  const SlotCheck check = Check(slot);
  EXPECT_EQ(check.fault, SlotFault::kNone) << check.status;
}

void ExpectCaller(const shm::Submission& slot, const char* reason, bool attach = true) {
  const SlotCheck check = Check(slot, attach);
  EXPECT_EQ(check.fault, SlotFault::kCaller);
  EXPECT_THAT(check.status, FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
}

TEST(CheckSubmissionTest, TakesAnOrdinarySlot) {
  const SlotCheck check = Check(Slot(OpKind::kAllReduce, 100, 0, 400));
  ASSERT_EQ(check.fault, SlotFault::kNone) << check.status;
  EXPECT_EQ(check.op, (OpDesc{.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .count = 100}));
}

TEST(CheckSubmissionTest, ReservedBitsAreCorrupt) {
  const shm::Submission good = Slot(OpKind::kAllReduce, 100, 0, 400);
  for (int field = 0; field < 7; ++field) {
    shm::Submission slot = good;
    if (field == 0) slot.reserved = 1;
    if (field == 1) slot.reserved2 = 0x80000000;
    if (field >= 2) slot.reserved3[field - 2] = uint64_t{1} << 63;
    EXPECT_EQ(Check(slot).fault, SlotFault::kCorrupt) << field;
  }
}

TEST(CheckSubmissionTest, OrderSlotsMustBePossible) {
  shm::Submission slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.order_slot = 1;
  slot.order_value = 77;
  ExpectTaken(slot);
  slot.order_slot = shm::kEagerSlots;
  ExpectTaken(slot);
  // Those that are captured have one value.
  slot.order_slot = shm::kEagerSlots + 1;
  EXPECT_EQ(Check(slot).fault, SlotFault::kCorrupt);
  slot.order_value = 1;
  ExpectTaken(slot);
  slot.order_slot = shm::kOrderSlots;
  ExpectTaken(slot);
  slot.order_slot = shm::kOrderSlots + 1;
  EXPECT_EQ(Check(slot).fault, SlotFault::kCorrupt);
  slot.order_slot = UINT32_MAX;
  EXPECT_EQ(Check(slot).fault, SlotFault::kCorrupt);
  slot.order_slot = 0;
  EXPECT_EQ(Check(slot).fault, SlotFault::kCorrupt);
  // Of a session that never asked for the memory.
  slot.order_slot = 1;
  slot.comm_id = kHandleWithRelays;
  EXPECT_EQ(Check(slot).fault, SlotFault::kCorrupt);
}

TEST(CheckSubmissionTest, GpuMemoryIsOrderedAndNotMixed) {
  shm::Submission slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.send.buffer_id = kGpuBuffer;
  slot.recv.buffer_id = kOtherGpuBuffer;
  ExpectCaller(slot, "no order slot");
  slot.order_slot = 3;
  slot.order_value = 1;
  ExpectTaken(slot);
  slot.recv = {.buffer_id = kGpuBuffer, .offset = 4};
  ExpectCaller(slot, "overlap");
  slot.recv = {.buffer_id = kBuffer, .offset = 0};
  EXPECT_THAT(Check(slot).status, FailsWith(absl::StatusCode::kFailedPrecondition,
                                            HasSubstr("send buffer is a GPU's")));
  slot.send = {.buffer_id = shm::kRawAddress, .offset = 4096};
  ExpectCaller(slot, "with an order slot");
}

TEST(CheckSubmissionTest, RelaysAreOfferedOnlyWhereThereAreSome) {
  shm::Submission slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.relay = 1;
  ExpectCaller(slot, "no relays");
  slot.comm_id = kHandleWithRelays;
  ExpectTaken(slot);
  for (const uint64_t bad : {uint64_t{2}, uint64_t{1} << 32, UINT64_MAX}) {
    slot.relay = bad;
    ExpectCaller(slot, "relay");
  }
}

TEST(CheckSubmissionTest, CodesOutOfRange) {
  shm::Submission slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.op = kOpKindCount;
  ExpectCaller(slot, "unknown operation");
  slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.dtype = kDTypeCount;
  ExpectCaller(slot, "unknown data type");
  slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.redop = kRedOpCount;
  ExpectCaller(slot, "unknown reduction");
  slot = Slot(OpKind::kAllGather, 100, 0, 400);
  slot.redop = 1;
  ExpectCaller(slot, "nothing is reduced");
  slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.comm_id = kHandle + 1;
  ExpectCaller(slot, "communicator 8");
  slot = Slot(OpKind::kAllReduce, 100, 0, 400);
  slot.root = 1;
  ExpectCaller(slot, "root 1");
  slot = Slot(OpKind::kBroadcast, 100, 0, 400);
  slot.root = kRanks;
  ExpectCaller(slot, "root 4");
}

TEST(CheckSubmissionTest, RangesAtTheirEdges) {
  ExpectTaken(Slot(OpKind::kAllReduce, kSize / 8, 0, kSize / 2));
  ExpectCaller(Slot(OpKind::kAllReduce, kSize / 8, 0, kSize / 2 + 4), "receive buffer 11");
  ExpectCaller(Slot(OpKind::kAllReduce, kSize / 8, kSize / 2 + 4, 0), "send buffer 11");
  shm::Submission slot = Slot(OpKind::kAllReduce, 1, kSize - 4, 0);
  ExpectTaken(slot);
  slot.send.offset = kSize;
  ExpectCaller(slot, "send buffer");
  for (const uint64_t offset : {kSize + 1, std::numeric_limits<uint64_t>::max(),
                                std::numeric_limits<uint64_t>::max() - 3}) {
    ExpectCaller(Slot(OpKind::kAllReduce, 1, offset, 0), "send buffer");
    ExpectCaller(Slot(OpKind::kAllReduce, 1, 0, offset), "receive buffer");
  }
  slot = Slot(OpKind::kAllReduce, 1, 0, 8);
  slot.send.buffer_id = 99;
  ExpectCaller(slot, "99 is not registered");
  // The larger side of each operation counts with all ranks.
  ExpectCaller(Slot(OpKind::kAllGather, kSize / 16 + 1, 0, 0), "receive buffer");
  ExpectCaller(Slot(OpKind::kReduceScatter, kSize / 16 + 1, 0, 0), "send buffer");
}

TEST(CheckSubmissionTest, CountsThatWrapAreRefused) {
  for (const uint64_t count : {std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63,
                               uint64_t{1} << 62, (uint64_t{1} << 60) + 1}) {
    for (int op = 0; op < kOpKindCount; ++op) {
      ExpectCaller(Slot(static_cast<OpKind>(op), count, 0, 0), "count");
    }
  }
}

TEST(CheckSubmissionTest, RawAddresses) {
  shm::Submission slot = Slot(OpKind::kAllReduce, 16, 0, 0);
  slot.send = {.buffer_id = shm::kRawAddress, .offset = 0x1000};
  slot.recv = {.buffer_id = shm::kRawAddress, .offset = 0x2000};
  ExpectTaken(slot);
  ExpectCaller(slot, "has not handed over", /*attach=*/false);
  slot.send.offset = 0;
  ExpectCaller(slot, "send buffer");
  slot.send.offset = std::numeric_limits<uint64_t>::max() - 62;
  ExpectCaller(slot, "send buffer");
}

TEST(CheckSubmissionTest, InPlaceAsNcclDefinesIt) {
  constexpr uint64_t kShare = 100 * 4 * kRank;
  ExpectTaken(Slot(OpKind::kAllReduce, 100, 64, 64));
  ExpectCaller(Slot(OpKind::kAllReduce, 100, 64, 68), "overlap");
  ExpectTaken(Slot(OpKind::kAllGather, 100, 64 + kShare, 64));
  ExpectCaller(Slot(OpKind::kAllGather, 100, 64, 64), "overlap");
  ExpectTaken(Slot(OpKind::kReduceScatter, 100, 64, 64 + kShare));
  ExpectCaller(Slot(OpKind::kReduceScatter, 100, 64, 64), "overlap");
  shm::Submission slot = Slot(OpKind::kAllReduce, 100, 64, 68);
  slot.recv.buffer_id = kSameMemory;
  ExpectCaller(slot, "overlap");
  slot.recv.buffer_id = kOther;
  ExpectTaken(slot);
}

TEST(CheckSubmissionTest, BroadcastAndScatterReadOnlyTheRoot) {
  for (const OpKind op : {OpKind::kBroadcast, OpKind::kScatter}) {
    shm::Submission slot = Slot(op, 100, 0, 0);
    slot.send = {.buffer_id = 99, .offset = 1};
    ExpectTaken(slot);
    slot.root = kRank;
    ExpectCaller(slot, "send buffer 99");
  }
}

TEST(CheckSubmissionTest, NoElementsNeedNoMemory) {
  shm::Submission slot = Slot(OpKind::kAllReduce, 0, 0, 0);
  slot.send = slot.recv = {};
  ExpectTaken(slot);
}

// Whatever the fields hold: what is taken lies within its buffer.
TEST(CheckSubmissionTest, WhatIsTakenLiesWithin) {
  constexpr uint32_t kSeed = 20260;
  std::mt19937_64 random(kSeed);
  const std::vector<uint64_t> extremes = {0,     1,         2,          3,
                                          kSize, kSize - 4, kSize / 16, kSize / 16 + 1,
                                          ~0ull, ~0ull - 3, 1ull << 63, 1ull << 62};
  const auto pick = [&] { return extremes[random() % extremes.size()]; };
  int taken = 0;
  for (int i = 0; i < 200'000; ++i) {
    shm::Submission slot = Slot(static_cast<OpKind>(random() % 6), pick(), pick(), pick());
    slot.dtype = static_cast<uint8_t>(random() % 11);
    slot.redop = static_cast<uint8_t>(random() % 2);
    slot.root = static_cast<uint32_t>(random() % 2);
    slot.recv.buffer_id = random() % 2 == 0 ? kBuffer : kOther;
    const SlotCheck check = Check(slot);
    if (check.fault != SlotFault::kNone || slot.count == 0) continue;
    ++taken;
    const unsigned __int128 width = SizeOf(check.op.dtype);
    const unsigned __int128 recv = width * RecvElements(check.op, kRanks) + slot.recv.offset;
    ASSERT_LE(recv, kSize) << "seed " << kSeed << " round " << i;
    if (HasRoot(check.op.kind) && check.op.root != kRank) continue;
    const unsigned __int128 send = width * SendElements(check.op, kRanks) + slot.send.offset;
    ASSERT_LE(send, kSize) << "seed " << kSeed << " round " << i;
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace spccl::daemon
