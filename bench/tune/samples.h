// What a sweep has measured: a CSV file that grows line by line.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/op.h"

namespace spccl::tune {

// An operation somewhere.
struct Case {
  OpKind op = OpKind::kAllReduce;
  uint32_t nodes = 2;
  uint32_t ranks = 2;
  uint64_t bytes = 0;  // as policy::TotalBytes counts
  double sparsity = 0;
  uint32_t channels = 0;  // of each daemon; 0: its own choice

  uint32_t most_ranks() const { return (ranks + nodes - 1) / nodes; }
  auto operator<=>(const Case&) const = default;
};
// "all_reduce, 2 nodes, 2 ranks, 1048576 bytes, 99% zeros"
std::string Describe(const Case& at);

struct Sample {
  Case at;
  std::string way{};  // "auto", or as policy::NameOf(Pick) has it
  std::string ran{};  // the algorithm that it ran as
  uint32_t iters = 0;
  double time_us = 0;  // their median
};

// What `path` holds; nothing if it is not there. What a writer that was killed has left of its last
// line is cut off. InvalidArgument: "PATH:LINE: ...".
absl::StatusOr<std::vector<Sample>> ReadSamples(const std::string& path);
// At once, so that whatever ends the program leaves all of them or none.
absl::Status AppendSamples(const std::string& path, const std::vector<Sample>& samples);

// A case with the time of each way to run it: the median where it was measured more than once.
struct Measured {
  Case at;
  std::map<std::string, double> time_us{};  // by way; without "auto"
  double auto_us = 0;                       // what the cost model's choices took
};
// Those of this number of channels of which at least one way and "auto" were measured.
std::vector<Measured> Gather(const std::vector<Sample>& samples, uint32_t channels);

double Median(std::vector<double> values);  // of at least one

}  // namespace spccl::tune
