// What a collective is, for every layer: the operation without its memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/dtype.h"
#include "kernels/redop.h"

namespace spccl {

enum class OpKind : uint8_t {
  kAllGather = 0,
  kReduceScatter = 1,
  kAllReduce = 2,
  kBroadcast = 3,
  kScatter = 4,
};
inline constexpr int kOpKindCount = 5;

constexpr bool IsValidOpKind(uint32_t code) {
  return code < kOpKindCount;
}

constexpr std::string_view NameOf(OpKind kind) {
  constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                         "scatter"};
  return kNames[static_cast<int>(kind)];
}

constexpr bool Reduces(OpKind kind) {
  return kind == OpKind::kReduceScatter || kind == OpKind::kAllReduce;
}

// As in NCCL's signatures: count is the send count for all-gather (a rank's contribution), the
// receive count for reduce-scatter and scatter (a rank's share of the result), else the whole
// buffer's.
struct OpDesc {
  OpKind kind = OpKind::kAllReduce;
  DType dtype = DType::kFloat32;
  RedOp redop = RedOp::kSum;  // unused where nothing is reduced
  uint32_t root = 0;          // broadcast and scatter only
  uint64_t count = 0;

  bool operator==(const OpDesc&) const = default;
};

// Whether only one rank, the root, has an input.
constexpr bool HasRoot(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kScatter;
}

// Elements of a rank's send and receive buffer. Only the root of a broadcast or a scatter sends.
constexpr uint64_t SendElements(const OpDesc& op, uint32_t ranks) {
  const bool shares = op.kind == OpKind::kReduceScatter || op.kind == OpKind::kScatter;
  return shares ? op.count * ranks : op.count;
}
constexpr uint64_t RecvElements(const OpDesc& op, uint32_t ranks) {
  return op.kind == OpKind::kAllGather ? op.count * ranks : op.count;
}

}  // namespace spccl
