// A collective as the program called it, and the checks that need no daemon.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spccl::client {

inline uintptr_t AddressOf(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

// Codes of operations as they travel in a submission.
enum class OpCode : uint8_t {
  kAllGather = 0,
  kReduceScatter = 1,
  kAllReduce = 2,
  kBroadcast = 3,
  kScatter = 4,
};

// Codes are kept as numbers until they are checked: a C caller can pass anything.
struct CollectiveCall {
  OpCode op;
  const void* send;
  void* recv;
  size_t count;        // elements, as in the signature of the operation
  uint32_t dtype;      // spcclDataType_t
  uint32_t redop = 0;  // spcclRedOp_t; 0 where nothing is reduced
  int root = 0;        // broadcast and scatter only
};

// Bytes of the two buffers that this rank's part touches; 0: the buffer is not looked at.
struct Footprint {
  size_t send_bytes;
  size_t recv_bytes;
};

// Of one of the valid codes.
size_t ElementBytes(uint32_t dtype);

// Checks all arguments but the memory behind the pointers. InvalidArgument names the argument.
absl::StatusOr<Footprint> CheckCall(const CollectiveCall& call, int rank, int ranks);

}  // namespace spccl::client
