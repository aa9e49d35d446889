// Of what all nodes of a communicator say of themselves and their links, what counts for all. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "collective/policy/tuning.h"

namespace spccl::daemon {

// One node's.
struct NodeCosts {
  policy::Costs costs = {};  // its link's constants do not count
  uint64_t machine = 0;      // nodes of the same share its cores and memory; 0: not known
  // Of its link to the next node; 0: not known.
  double alpha = 0;      // seconds
  double link_rate = 0;  // bytes a second
};

// InvalidArgument unless both are finite and not negative.
absl::Status CheckLink(double alpha, double link_rate);

// The slowest of all (one at least), one constant at a time. Nodes of one machine have its cores
// and its memory's speed between them. What is known of no link is what `defaults` says.
policy::Costs CommonCosts(std::span<const NodeCosts> nodes, const policy::Costs& defaults);

}  // namespace spccl::daemon
