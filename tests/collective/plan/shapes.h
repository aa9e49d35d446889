// Communicators of every shape, for tests of plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/op.h"

namespace spccl::plan {

constexpr OpKind kAllOps[] = {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllReduce,
                              OpKind::kBroadcast, OpKind::kScatter};

struct Shape {
  std::string name;
  std::vector<uint32_t> node_of_rank;
};

// Communicators over `nodes` nodes.
inline std::vector<Shape> ShapesOf(uint32_t nodes) {
  Shape flat{"one rank a node", {}};
  Shape blocks{"one to three ranks a node", {}};
  Shape zigzag{"zigzag, the last ones with more", {}};
  for (uint32_t node = 0; node < nodes; ++node) {
    flat.node_of_rank.push_back(node);
    for (uint32_t i = 0; i < 1 + node * 5 % 3; ++i) blocks.node_of_rank.push_back(node);
  }
  // The nodes in turn, forwards and backwards, and once more over the last half.
  for (uint32_t node = 0; node < nodes; ++node) zigzag.node_of_rank.push_back(node);
  for (uint32_t node = nodes; node-- > 0;) zigzag.node_of_rank.push_back(node);
  for (uint32_t node = nodes / 2; node < nodes; ++node) zigzag.node_of_rank.push_back(node);
  return {flat, blocks, zigzag};
}

}  // namespace spccl::plan
