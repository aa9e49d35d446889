// Which ranks the participants of a plan stand for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spccl::plan {

// By participant, its global ranks, ascending. Every rank below their number is in exactly one.
// The order of participants is the order of rings and the numbering of trees.
using Members = std::vector<std::vector<uint32_t>>;

// One rank each, in the order of ranks.
Members FlatMembers(uint32_t ranks);

// One rank each, the ranks of a node side by side, so that a ring enters and leaves each node once.
// Nodes in the order of their lowest ranks.
Members FlatMembersByNode(std::span<const uint32_t> node_of_rank);

// One participant a node, in the order of their lowest ranks.
Members NodeMembers(std::span<const uint32_t> node_of_rank);

// All ranks.
uint32_t RanksIn(const Members& members);

// The participant of each rank.
std::vector<uint32_t> ParticipantOfRank(const Members& members);

}  // namespace spccl::plan
