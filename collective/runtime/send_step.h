// What was decided at each send of a plan, for the telemetry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/phase.h"
#include "collective/policy/decision.h"
#include "kernels/format.h"

namespace spccl::runtime {

// What was decided where a participant has its n-th send, by all of this node's that have so many,
// in all lanes.
struct SendStepStats {
  Phase phase = Phase::kReduceScatter;
  policy::Link link = policy::Link::kIntra;  // of the last that was sent
  std::array<uint64_t, policy::kReasonCount> decisions{};
  // Of the sends for which a sparsity was known: measured for a first compression, else what was
  // compared with the threshold. Mean: sum / count.
  double sparsity_sum = 0;
  uint64_t sparsity_count = 0;
  double threshold = 0;  // of the last comparison
  uint64_t wire_bytes = 0, dense_bytes = 0;
  // As what they went, and which other format the cost model had next.
  std::array<uint64_t, kFormatCount> formats{}, runners_up{};
  // Sums over the sends that the model had a forecast for: until the receiver has it, of the format
  // that was chosen and of the runner-up; and of the former, one thread's encoding and the link
  // alone.
  uint64_t forecasts = 0;
  double predicted_ns = 0, runner_up_ns = 0, predicted_encode_ns = 0, predicted_wire_ns = 0;
  // What it was: threads' time that encoding took, all together, and the time in which some frame
  // to another node was with the transport, which had not put it out yet.
  uint64_t encode_ns = 0, wire_ns = 0;
};
// Steps after these are not told apart: they count as the last one.
inline constexpr size_t kMostSendSteps = 64;

}  // namespace spccl::runtime
