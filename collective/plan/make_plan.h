// The plan that an algorithm's name stands for.
#pragma once

#include <cstdint>
#include <span>

#include "collective/op.h"
#include "collective/plan/plan.h"
#include "collective/policy/settings.h"

namespace spccl::plan {

// Over ranks of which each is on the node that `node_of_rank` says; `root` is a rank, used where
// the operation has one. Requires HasPlan(algorithm, op), and not kLocal, which is no plan of
// steps. kRing goes over ranks, those of a node side by side; all others over nodes.
Plan MakePlan(policy::Algorithm algorithm, OpKind op, std::span<const uint32_t> node_of_rank,
              uint32_t root);

// Tells different plans apart: participants that run plans of the same digest run the same plan.
uint64_t Digest(const Plan& plan);

}  // namespace spccl::plan
