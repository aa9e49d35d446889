// A flight record as a page of text. Pure.
#pragma once

#include <string>

#include "proto/spccl/v1/flight.pb.h"

namespace spccl::ctl {

std::string SummaryOf(const v1::FlightRecord& record);

}  // namespace spccl::ctl
