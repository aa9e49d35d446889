// Flight records as a trace that Perfetto and chrome://tracing show. Pure.
#pragma once

#include <vector>

#include "nlohmann/json.hpp"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::ctl {

// The records' nodes side by side, by what their clocks say of the time of day. For each node three
// processes: its ranks (an operation from its post to its end, with what it waited for), its
// channels (what each thread did, with format and density), and its waits for frames and for room.
// All events are complete ones ("X"), but for metadata ("M") and the instant of a failure ("i");
// those of one track (pid, tid) are in order of ts and nest.
nlohmann::ordered_json TraceOf(const std::vector<v1::FlightRecord>& records);

}  // namespace spccl::ctl
