// What one line of a performance run measures, in nccl-tests' terms. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "kernels/redop.h"

namespace spccl::bench {

// Bytes of a text such as "8", "64K", "16M", "1G" (powers of 1024), at least 1.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);
// The same for a list with commas between.
absl::StatusOr<std::vector<uint64_t>> ParseSizes(std::string_view text);

enum class Collective : uint8_t { kAllGather, kReduceScatter, kAllReduce, kBroadcast, kScatter };
inline constexpr int kCollectiveCount = 5;

constexpr std::string_view NameOf(Collective kind) {
  constexpr std::string_view kNames[kCollectiveCount] = {"all_gather", "reduce_scatter",
                                                         "all_reduce", "broadcast", "scatter"};
  return kNames[static_cast<int>(kind)];
}

constexpr bool Reduces(Collective kind) {
  return kind == Collective::kReduceScatter || kind == Collective::kAllReduce;
}

// Each rank has a share of the input, or gets one of the result.
constexpr bool Shares(Collective kind) {
  return kind == Collective::kAllGather || kind == Collective::kReduceScatter ||
         kind == Collective::kScatter;
}

// The arguments of one call, as in NCCL's signatures: count is what a rank contributes to an
// all-gather, its share of a reduce-scatter's or a scatter's result, else the whole buffer's
// elements.
struct Operation {
  Collective kind = Collective::kAllReduce;
  DType dtype = DType::kFloat32;
  RedOp redop = RedOp::kSum;  // unused where nothing is reduced
  uint32_t root = 0;          // of a broadcast or a scatter
  uint64_t count = 0;
};

// Elements of a rank's send and receive buffer; of a scatter only the root's send buffer is looked
// at.
constexpr uint64_t SendElements(const Operation& op, uint32_t ranks) {
  const bool all = op.kind == Collective::kReduceScatter || op.kind == Collective::kScatter;
  return all ? op.count * ranks : op.count;
}
constexpr uint64_t RecvElements(const Operation& op, uint32_t ranks) {
  return op.kind == Collective::kAllGather ? op.count * ranks : op.count;
}

struct Problem {
  Operation op;
  uint32_t ranks = 0;
  // nccl-tests' size: the whole output of an all-gather, the whole input of a reduce-scatter or a
  // scatter, the buffer of the other two. A multiple of the elements' size, and where it is shared
  // out among the ranks, of theirs.
  uint64_t bytes = 0;

  uint64_t send_bytes() const { return SendElements(op, ranks) * SizeOf(op.dtype); }
  uint64_t recv_bytes() const { return RecvElements(op, ranks) * SizeOf(op.dtype); }
};

// `bytes` is rounded down to what divides; an error when nothing is left.
absl::StatusOr<Problem> MakeProblem(Collective kind, DType dtype, RedOp redop, uint32_t ranks,
                                    uint64_t bytes);

// Bandwidths in 10^9 bytes per second. The algorithm's is size over time; the bus's corrects it by
// what each link must carry at least (nccl-tests, doc/PERFORMANCE.md): 2(n-1)/n for an all-reduce,
// (n-1)/n for an all-gather, a reduce-scatter or a scatter, 1 for a broadcast.
double AlgorithmBandwidth(uint64_t bytes, double time_us);
double BusFactor(Collective kind, uint32_t ranks);

// Where a rank's two buffers lie when it works in place, in bytes from the start of one buffer of
// max(send_bytes, recv_bytes): an all-gather sends from its own part of the output, a
// reduce-scatter receives into its own part of the input, and so does a scatter's root.
struct InPlaceOffsets {
  uint64_t send = 0;
  uint64_t recv = 0;
};
InPlaceOffsets InPlace(const Problem& problem, uint32_t rank);

}  // namespace spccl::bench
