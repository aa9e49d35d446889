// What one line of a performance run measures, in nccl-tests' terms. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/op.h"

namespace spccl::bench {

// Bytes of a text such as "8", "64K", "16M", "1G" (powers of 1024), at least 1.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);
// The same for a list with commas between.
absl::StatusOr<std::vector<uint64_t>> ParseSizes(std::string_view text);

struct Problem {
  OpDesc op;
  uint32_t ranks = 0;
  // nccl-tests' size: the whole output of an all-gather, the whole input of a reduce-scatter, the
  // buffer of the other two. A multiple of the elements' size, and where it is shared out among the
  // ranks, of theirs.
  uint64_t bytes = 0;

  uint64_t send_bytes() const { return SendElements(op, ranks) * SizeOf(op.dtype); }
  uint64_t recv_bytes() const { return RecvElements(op, ranks) * SizeOf(op.dtype); }
};

// `bytes` is rounded down to what divides; an error when nothing is left.
absl::StatusOr<Problem> MakeProblem(OpKind kind, DType dtype, RedOp redop, uint32_t ranks,
                                    uint64_t bytes);

// Bandwidths in 10^9 bytes per second. The algorithm's is size over time; the bus's corrects it by
// what each link must carry at least (nccl-tests, doc/PERFORMANCE.md): 2(n-1)/n for an all-reduce,
// (n-1)/n for an all-gather or a reduce-scatter, 1 for a broadcast.
double AlgorithmBandwidth(uint64_t bytes, double time_us);
double BusFactor(OpKind kind, uint32_t ranks);

// Where a rank's two buffers lie when it works in place, in bytes from the start of one buffer of
// max(send_bytes, recv_bytes): an all-gather sends from its own part of the output, a
// reduce-scatter receives into its own part of the input.
struct InPlaceOffsets {
  uint64_t send = 0;
  uint64_t recv = 0;
};
InPlaceOffsets InPlace(const Problem& problem, uint32_t rank);

}  // namespace spccl::bench
