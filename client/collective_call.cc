#include "client/collective_call.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/include/spccl/spccl.h"

namespace spccl::client {
namespace {

constexpr size_t kElementBytes[spcclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

bool Reduces(OpCode op) {
  return op == OpCode::kReduceScatter || op == OpCode::kAllReduce;
}

// An enumerator's code as the caller wrote it, -1 say.
int32_t AsGiven(uint32_t code) {
  return static_cast<int32_t>(code);
}

// Only the root's send buffer is read.
bool HasRoot(OpCode op) {
  return op == OpCode::kBroadcast || op == OpCode::kScatter;
}

absl::Status CheckCodes(const CollectiveCall& call, int ranks) {
  if (call.dtype >= spcclNumTypes) {
    return absl::InvalidArgumentError(absl::StrCat("datatype is ", AsGiven(call.dtype),
                                                   ", not one of 0 to ",
                                                   static_cast<int>(spcclNumTypes) - 1));
  }
  if (Reduces(call.op) && call.redop >= spcclNumOps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op is ", AsGiven(call.redop), ", not one of 0 to ", static_cast<int>(spcclNumOps) - 1));
  }
  if (HasRoot(call.op) && (call.root < 0 || call.root >= ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("root is ", call.root, ", the communicator has ", ranks, " ranks"));
  }
  return absl::OkStatus();
}

// In place is allowed at one offset; any other overlap would be read after it was written.
absl::Status CheckOverlap(const CollectiveCall& call, const Footprint& bytes, int rank) {
  const auto send = AddressOf(call.send);
  const auto recv = AddressOf(call.recv);
  if (send >= recv + bytes.recv_bytes || recv >= send + bytes.send_bytes) return absl::OkStatus();
  const auto place = static_cast<size_t>(rank);
  bool in_place = false;
  switch (call.op) {
    case OpCode::kAllGather:
      in_place = send == recv + place * bytes.send_bytes;
      break;
    case OpCode::kReduceScatter:
    case OpCode::kScatter:
      in_place = recv == send + place * bytes.recv_bytes;
      break;
    case OpCode::kAllReduce:
    case OpCode::kBroadcast:
      in_place = send == recv;
      break;
  }
  if (in_place) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "sendbuff and recvbuff overlap, and not as in place is defined for this operation");
}

absl::Status CheckEnd(const char* name, const void* buffer, size_t bytes) {
  const auto begin = AddressOf(buffer);
  if (bytes <= UINTPTR_MAX - begin) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is 0x", absl::Hex(begin), ": its ", bytes,
                                                 " bytes go beyond the highest address"));
}

}  // namespace

size_t ElementBytes(uint32_t dtype) {
  return kElementBytes[dtype];
}

absl::StatusOr<Footprint> CheckCall(const CollectiveCall& call, int rank, int ranks) {
  if (absl::Status status = CheckCodes(call, ranks); !status.ok()) return status;
  size_t part, whole;
  if (__builtin_mul_overflow(call.count, ElementBytes(call.dtype), &part) ||
      __builtin_mul_overflow(part, static_cast<size_t>(ranks), &whole) || whole > PTRDIFF_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("count is ", call.count, " elements of ",
                                                   ElementBytes(call.dtype), " bytes, with ", ranks,
                                                   " ranks more than memory can hold"));
  }
  const bool shares = call.op == OpCode::kReduceScatter || call.op == OpCode::kScatter;
  Footprint bytes{.send_bytes = shares ? whole : part,
                  .recv_bytes = call.op == OpCode::kAllGather ? whole : part};
  if (HasRoot(call.op) && call.root != rank) bytes.send_bytes = 0;
  if (bytes.send_bytes > 0 && call.send == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("sendbuff is NULL with count ", call.count));
  }
  if (bytes.recv_bytes > 0 && call.recv == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("recvbuff is NULL with count ", call.count));
  }
  SPCCL_RETURN_IF_ERROR(CheckEnd("sendbuff", call.send, bytes.send_bytes));
  SPCCL_RETURN_IF_ERROR(CheckEnd("recvbuff", call.recv, bytes.recv_bytes));
  if (bytes.send_bytes > 0 && bytes.recv_bytes > 0) {
    if (absl::Status status = CheckOverlap(call, bytes, rank); !status.ok()) return status;
  }
  return bytes;
}

}  // namespace spccl::client
