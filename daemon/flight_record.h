// From what the core holds to the flight record that others read (proto/spccl/v1/flight.proto).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collective/runtime/span_ring.h"
#include "collective/runtime/task.h"
#include "daemon/registry.h"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::daemon {

// A record under way: what only the core thread may read is in it, the rest is added by any thread.
struct FlightDraft {
  v1::FlightRecord record;
  std::map<uint64_t, uint64_t> sequence_of;  // by the operation's name in spans
};

// Core thread. All but spans, peers, and what the ranks' processes do. `nodes`: nullptr if there
// are none. The caller says of which daemon and node it is.
FlightDraft DraftFlight(const CommEntry& entry, const Nodes* nodes);

// The spans that each thread has kept, by channel; 0: the core thread's.
using FlightSpans = std::map<uint32_t, std::vector<runtime::Span>>;

// Adds those of the record's operations, the newest kMostSpans of them. Pure.
void AddSpans(const FlightSpans& spans, FlightDraft* draft);
// What fits into a gRPC message of the default size (4 MiB), with much room for the rest.
inline constexpr size_t kMostSpans = 32768;

// What the kernel says of the processes of this node's ranks.
void AddProcesses(v1::FlightRecord* record);
// "stopped" of the content of /proc/PID/stat; empty if it is none. Pure.
std::string ProcessStateOf(const std::string& stat);

}  // namespace spccl::daemon
