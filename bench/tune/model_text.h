// What was learned, as the file that spccld loads (docs/tuning.md), and as people read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/tune/train.h"

namespace spccl::tune {

// `made`: when, for people. ResourceExhausted: more different ways than the format has letters.
absl::StatusOr<std::string> ModelText(const std::vector<Learned>& all, uint32_t channels,
                                      const std::string& made);

// A line a collective: how good the choices were on what was held out, beside the cost model's.
std::string QualityTable(const std::vector<Learned>& all);

}  // namespace spccl::tune
