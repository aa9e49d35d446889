// The phases of a collective, as plans and policy know them.
#pragma once

#include <cstdint>
#include <string_view>

namespace spccl {

// Partial sums travel in kReduceScatter, final values in kAllGather (to which a broadcast belongs,
// too). An all-reduce has both, in this order; the first step of kAllGather is the phase boundary.
enum class Phase : uint8_t { kReduceScatter = 0, kAllGather = 1 };
inline constexpr int kPhaseCount = 2;

constexpr std::string_view NameOf(Phase phase) {
  return phase == Phase::kReduceScatter ? "reduce_scatter" : "all_gather";
}

}  // namespace spccl
