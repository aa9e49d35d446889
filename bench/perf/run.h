// The body of each of the three tools: every size in turn, a line each on standard output.
#pragma once

#include <string_view>

#include "bench/perf/measure.h"

namespace spccl::bench {

// Collective. Rank 0 writes. The result says whether every element that was checked was right; it
// is the same on every rank.
absl::StatusOr<bool> RunProblems(std::string_view tool, Team& team, Backend& backend,
                                 const Options& options);

// Reads the command line and calls `run` with it, or prints what the caller ought to know. Returns
// the process's exit code: 1 after wrong use, else what `run` returns.
int RunTool(const Tool& tool, int argc, const char* const* argv, int (*run)(const Options&));

}  // namespace spccl::bench
