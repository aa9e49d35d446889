// What the ranks of a run need of one another outside the measured work, whoever started them.
#pragma once

#include <span>

#include "absl/status/status.h"

namespace spccl::bench {

class Team {
 public:
  virtual ~Team() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // All of the following are collective: every rank calls them, in the same order. An error means
  // that another rank has failed.

  // Returns once every rank has called it.
  virtual absl::Status Barrier() = 0;
  // values[i] becomes the largest, or the sum, of all ranks' values[i]; as many values on each
  // rank.
  virtual absl::Status MaxOverRanks(std::span<double> values) = 0;
  virtual absl::Status SumOverRanks(std::span<double> values) = 0;
};

}  // namespace spccl::bench
