// What holds in a scope, and who says so, for people.
#pragma once

#include <ostream>

#include "proto/spccl/v1/control.pb.h"

namespace spccl::ctl {

void PrintThresholds(const v1::GetSettingsResponse& response, std::ostream* out);
// And the slice size and the codec.
void PrintAlgorithm(const v1::GetSettingsResponse& response, std::ostream* out);

}  // namespace spccl::ctl
