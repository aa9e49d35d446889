// Several nodes in one process, connected over UCX.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collective/runtime/node_scope.h"
#include "collective/transport/ucx/fabric.h"
#include "tests/collective/transport/ucx/fabric_support.h"
#include "tests/support/rank_memory.h"

namespace spccl::runtime {

using transport::ucx::Communicator;
using transport::ucx::Event;
using transport::ucx::Fabric;
using transport::ucx::Link;

// Nodes 0 .. n-1, each with a fabric, connected to all others, and one communicator.
class UcxNodes {
 public:
  explicit UcxNodes(std::vector<uint32_t> node_of_rank) : node_of_rank_(std::move(node_of_rank)) {
    const uint32_t nodes = *std::max_element(node_of_rank_.begin(), node_of_rank_.end()) + 1;
    for (uint32_t node = 0; node < nodes; ++node) {
      fabrics_.push_back(transport::ucx::MakeFabric(transport::ucx::OverTcp(2)));
    }
    links_.assign(nodes, std::vector<std::shared_ptr<Link>>(nodes));
    for (uint32_t a = 0; a < nodes; ++a) {
      for (uint32_t b = a + 1; b < nodes; ++b) ConnectPair(a, b);
    }
    for (uint32_t node = 0; node < nodes; ++node) {
      std::vector<std::shared_ptr<Link>> link_of_rank;
      for (const uint32_t other : node_of_rank_) link_of_rank.push_back(links_[node][other]);
      communicators_.push_back(*fabrics_[node]->OpenCommunicator({{5, 6}, link_of_rank}));
      scopes_.push_back(*NodeScope::Create(node_of_rank_, node));
    }
  }
  ~UcxNodes() { communicators_.clear(); }

  uint32_t size() const { return static_cast<uint32_t>(fabrics_.size()); }
  Fabric& fabric(uint32_t node) { return *fabrics_[node]; }
  NodeScope& scope(uint32_t node) { return *scopes_[node]; }
  const std::shared_ptr<Link>& link(uint32_t from, uint32_t to) { return links_[from][to]; }

  // This node's task; the operations of a node are counted.
  absl::StatusOr<PlannedTask> Make(uint32_t node, uint64_t sequence, const OpDesc& op,
                                   const testing::RankMemory& memory,
                                   const policy::Settings& settings, const policy::Tuning& tuning,
                                   DoneFn done) {
    std::vector<RankBuffers> local;
    for (const uint32_t rank : scopes_[node]->local_ranks()) {
      local.push_back(memory.buffers()[rank]);
    }
    const auto open = [&](uint64_t digest, uint64_t largest) {
      return communicators_[node]->OpenOperation({.sequence = sequence,
                                                  .facts = {.op = op, .plan = digest},
                                                  .largest_frame_bytes = largest});
    };
    return scopes_[node]->MakeTask(op, local, settings, tuning, open, std::move(done));
  }

 private:
  void ConnectPair(uint32_t a, uint32_t b) {
    const transport::ucx::Offer offer_a = fabrics_[a]->MakeOffer();
    const transport::ucx::Offer offer_b = fabrics_[b]->MakeOffer();
    Event up_a, up_b;
    links_[a][b] = *fabrics_[a]->Connect(
        {.name = absl::StrCat("node", b), .own = offer_a, .peer = offer_b, .on_up = [&] {
           up_a.Set();
         }});
    links_[b][a] = *fabrics_[b]->Connect(
        {.name = absl::StrCat("node", a), .own = offer_b, .peer = offer_a, .on_up = [&] {
           up_b.Set();
         }});
    ASSERT_TRUE(up_a.Await() && up_b.Await());
  }

  const std::vector<uint32_t> node_of_rank_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::vector<std::shared_ptr<Link>>> links_;  // by node and other node
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<NodeScope>> scopes_;
};

}  // namespace spccl::runtime
