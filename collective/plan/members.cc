#include "collective/plan/members.h"

#include <map>

namespace spccl::plan {

Members FlatMembers(uint32_t ranks) {
  Members members;
  for (uint32_t rank = 0; rank < ranks; ++rank) members.push_back({rank});
  return members;
}

Members FlatMembersByNode(std::span<const uint32_t> node_of_rank) {
  Members members;
  for (const std::vector<uint32_t>& node : NodeMembers(node_of_rank)) {
    for (const uint32_t rank : node) members.push_back({rank});
  }
  return members;
}

Members NodeMembers(std::span<const uint32_t> node_of_rank) {
  Members members;
  std::map<uint32_t, size_t> participant_of_node;
  for (uint32_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto [at, added] = participant_of_node.emplace(node_of_rank[rank], members.size());
    if (added) members.emplace_back();
    members[at->second].push_back(rank);
  }
  return members;
}

uint32_t RanksIn(const Members& members) {
  size_t ranks = 0;
  for (const std::vector<uint32_t>& one : members) ranks += one.size();
  return static_cast<uint32_t>(ranks);
}

std::vector<uint32_t> ParticipantOfRank(const Members& members) {
  std::vector<uint32_t> participant_of_rank(RanksIn(members));
  for (uint32_t participant = 0; participant < members.size(); ++participant) {
    for (const uint32_t rank : members[participant]) participant_of_rank[rank] = participant;
  }
  return participant_of_rank;
}

}  // namespace spccl::plan
