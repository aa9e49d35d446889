// How a measurement is written: a table for people, one JSON object a line for programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/measure.h"

namespace spccl::bench {

struct Summary {
  double min = 0;
  double p50 = 0;  // of an even number of values: the mean of the middle two
  double mean = 0;
  double p99 = 0;  // the smallest that at least 99 of 100 do not pass
};
Summary Summarize(std::vector<double> values);  // of at least one value

// Lines before a table: the run's settings, then the columns' names.
std::string TableHead(std::string_view tool, const Options& options);
// One line a size and setting; `setting` null: there are none.
std::string TableRow(const Problem& problem, const Options& options, const Setting* setting,
                     const Measurement& measured);

// Keys: tool, op, dtype, redop, algo, ran (the algorithm of the last operation), codec, ranks,
// nodes, bytes, sparsity, seed, buffers, device (as --device has it), device_name (of rank 0's
// GPU; null on the host), memory ("handed over (KIND)", or "staged through the host: " and why;
// null on the host), in_place, iters, time_us_min, time_us_p50, time_us_mean, time_us_p99,
// algbw_gbps, busbw_gbps (10^9 bytes per second, of time_us_p50), wire_bytes, dense_bytes (per
// operation, of all ranks; both 0 when nothing went as frames), sends (per operation, by format),
// sends_by_phase and decisions (per operation: by phase, and by "PHASE/REASON" as in
// docs/operations.md), spent_us (per operation, of all nodes' threads together: encode, send,
// reduce; and what participants waited: receive_wait, room_wait; empty for other libraries), wrong
// (null without --check).
//
// positions; setting (the one of --settings that it was, or null); send_steps: of the last
// operation, on rank 0's node, each send's formats, runners_up and times forecast and taken, in
// microseconds (docs/operations.md).
std::string JsonLine(std::string_view tool, const Problem& problem, const Options& options,
                     const Setting* setting, const Measurement& measured);

}  // namespace spccl::bench
