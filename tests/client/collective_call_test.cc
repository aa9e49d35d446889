#include "client/collective_call.h"

#include <cstdint>
#include <string>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::client {
namespace {

using ::testing::HasSubstr;

char g_memory[4096];

CollectiveCall Call(OpCode op, size_t count = 4) {
  return {
      .op = op, .send = g_memory, .recv = g_memory + 2048, .count = count, .dtype = spcclFloat32};
}

std::string Refusal(const CollectiveCall& call, int rank = 0, int ranks = 2) {
  const auto bytes = CheckCall(call, rank, ranks);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(bytes.status().message());
}

TEST(CheckCallTest, FootprintsAreThoseOfEachOperation) {
  const struct {
    OpCode op;
    size_t send, recv;
  } cases[] = {{OpCode::kAllGather, 16, 48},
               {OpCode::kReduceScatter, 48, 16},
               {OpCode::kAllReduce, 16, 16},
               {OpCode::kBroadcast, 16, 16},
               {OpCode::kScatter, 48, 16}};
  for (const auto& expected : cases) {
    const auto bytes = CheckCall(Call(expected.op), /*rank=*/0, /*ranks=*/3);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(bytes->send_bytes, expected.send);
    EXPECT_EQ(bytes->recv_bytes, expected.recv);
  }
}

TEST(CheckCallTest, BuffersEndBeforeMemoryDoes) {
  CollectiveCall call = Call(OpCode::kAllReduce);  // of 16 bytes
  call.send = reinterpret_cast<const void*>(UINTPTR_MAX - 15);
  EXPECT_THAT(Refusal(call), HasSubstr("sendbuff is 0xfffffffffffffff0: its 16 bytes"));
  call.send = reinterpret_cast<const void*>(UINTPTR_MAX - 16);
  EXPECT_TRUE(CheckCall(call, 0, 2).ok());
  call = Call(OpCode::kAllReduce);
  call.recv = reinterpret_cast<void*>(UINTPTR_MAX - 3);
  EXPECT_THAT(Refusal(call), HasSubstr("recvbuff is"));
}

TEST(CheckCallTest, EveryElementTypeHasItsWidth) {
  const size_t widths[spcclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  for (uint32_t dtype = 0; dtype < spcclNumTypes; ++dtype) {
    CollectiveCall call = Call(OpCode::kAllReduce, 3);
    call.dtype = dtype;
    EXPECT_EQ(CheckCall(call, 0, 2)->send_bytes, 3 * widths[dtype]) << dtype;
  }
}

TEST(CheckCallTest, OnlyTheRootSendsInABroadcastAndAScatter) {
  for (const OpCode op : {OpCode::kBroadcast, OpCode::kScatter}) {
    CollectiveCall call = Call(op);
    call.root = 1;
    call.send = nullptr;
    EXPECT_EQ(CheckCall(call, /*rank=*/0, /*ranks=*/2)->send_bytes, 0u);
    EXPECT_THAT(Refusal(call, /*rank=*/1), HasSubstr("sendbuff is NULL with count 4"));
  }
}

TEST(CheckCallTest, RefusesWrongCodes) {
  CollectiveCall call = Call(OpCode::kAllReduce);
  call.dtype = 10;
  EXPECT_THAT(Refusal(call), HasSubstr("datatype is 10"));
  call = Call(OpCode::kAllReduce);
  call.redop = 5;
  EXPECT_THAT(Refusal(call), HasSubstr("op is 5"));
  for (const OpCode op : {OpCode::kBroadcast, OpCode::kScatter}) {
    call = Call(op);
    for (const int root : {-1, 2}) {
      call.root = root;
      EXPECT_THAT(Refusal(call), HasSubstr("root is " + std::to_string(root)));
    }
  }
}

TEST(CheckCallTest, NullIsFineForNothing) {
  CollectiveCall call = Call(OpCode::kAllGather, 0);
  call.send = nullptr;
  call.recv = nullptr;
  EXPECT_TRUE(CheckCall(call, 0, 2).ok());
  call.count = 1;
  EXPECT_THAT(Refusal(call), HasSubstr("sendbuff is NULL"));
  call.send = g_memory;
  EXPECT_THAT(Refusal(call), HasSubstr("recvbuff is NULL"));
}

TEST(CheckCallTest, RefusesCountsThatOverflow) {
  // The product with the width, the product with the ranks, and what a pointer difference can hold.
  for (const size_t count : {SIZE_MAX, SIZE_MAX / 4, size_t{PTRDIFF_MAX} / 8 + 1}) {
    EXPECT_THAT(Refusal(Call(OpCode::kAllGather, count)), HasSubstr("count is ")) << count;
  }
}

TEST(CheckCallTest, InPlaceIsAllowedWhereNcclDefinesIt) {
  for (int rank = 0; rank < 3; ++rank) {
    CollectiveCall call = Call(OpCode::kAllGather);
    call.recv = g_memory;
    call.send = g_memory + rank * 16;
    EXPECT_TRUE(CheckCall(call, rank, 3).ok()) << rank;
    for (const OpCode op : {OpCode::kReduceScatter, OpCode::kScatter}) {
      call = Call(op);
      call.root = op == OpCode::kScatter ? rank : 0;
      call.send = g_memory;
      call.recv = g_memory + rank * 16;
      EXPECT_TRUE(CheckCall(call, rank, 3).ok()) << rank;
    }
  }
  for (const OpCode op : {OpCode::kAllReduce, OpCode::kBroadcast}) {
    CollectiveCall call = Call(op);
    call.recv = g_memory;
    EXPECT_TRUE(CheckCall(call, 0, 3).ok());
  }
}

TEST(CheckCallTest, RefusesAnyOtherOverlap) {
  for (const OpCode op : {OpCode::kAllGather, OpCode::kReduceScatter, OpCode::kAllReduce,
                          OpCode::kBroadcast, OpCode::kScatter}) {
    CollectiveCall call = Call(op);
    call.recv = g_memory + 4;
    EXPECT_THAT(Refusal(call), HasSubstr("overlap")) << static_cast<int>(op);
  }
  // Another rank's place.
  CollectiveCall call = Call(OpCode::kAllGather);
  call.recv = g_memory;
  call.send = g_memory + 16;
  EXPECT_THAT(Refusal(call, /*rank=*/0), HasSubstr("overlap"));
  // Side by side is no overlap.
  call = Call(OpCode::kAllReduce);
  call.recv = g_memory + 16;
  EXPECT_TRUE(CheckCall(call, 0, 2).ok());
}

}  // namespace
}  // namespace spccl::client
