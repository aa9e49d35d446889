// Which algorithm runs an operation between nodes, and what each would take. Pure.
//
// The cost model is Hockney's (a message takes alpha + bytes / rate) with terms for the codecs, as
// in SparCML (Renggli et al., section 5.3) and gZCCL, and with SpCCL's growth of density: the sum
// of k inputs of density d has 1 - (1 - d)^k. Each send is taken to have the smallest format at its
// density. Slices overlap: what the link and what the cores need run side by side, but for one
// slice or a tenth; the rounds of one slice do not.
//
// Every node evaluates it by itself and must come to the same result: it uses nothing but IEEE
// addition, multiplication, division and comparison, and is compiled without contraction.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collective/op.h"
#include "collective/policy/tuning.h"

namespace spccl::policy {

struct Topology {
  uint32_t nodes = 1;
  uint32_t ranks = 1;
  uint32_t most_ranks = 1;  // on one node

  static Topology Of(std::span<const uint32_t> node_of_rank);
};

struct Prediction {
  Algorithm algorithm = Algorithm::kAuto;
  double seconds = 0;
  // What it is made of, of the busiest node: the link alone, the cores and the memory alone, the
  // rounds' alphas.
  double link_seconds = 0, core_seconds = 0, round_seconds = 0;
  double wire_bytes = 0;   // out of or into the node, the larger
  double dense_bytes = 0;  // the same sends, all dense, in the operation's own type
  uint32_t rounds = 0;     // messages that one slice waits for, one after the other
};

// Who chose.
enum class Chooser : uint8_t {
  kCostModel = 0,  // the fastest by prediction, or what there is one of
  kTable,          // tuning.table: measured, or learned from what was
  kFixed,          // tuning.algorithm
};
constexpr std::string_view NameOf(Chooser chooser) {
  constexpr std::string_view kNames[] = {"cost model", "model", "fixed"};
  return kNames[static_cast<int>(chooser)];
}

struct Choice {
  Algorithm algorithm = Algorithm::kLocal;
  Chooser chooser = Chooser::kCostModel;
  uint64_t slice_bytes = 0;             // 0: SliceBytes of policy/slice.h decides
  std::vector<Prediction> predictions;  // of every algorithm that has a plan, the fastest first
};

// kLocal (or a fixed kRing) on one node. Between nodes what is fixed, where that has a plan for the
// operation and is not kLocal; else what the table has for it; else the fastest by prediction. The
// flat ring is predicted, but chosen only if it is fixed or was measured to be the fastest: it is
// there for its own sake.
Choice ChoosePlan(const Tuning& tuning, const OpDesc& op, const Topology& topology);

// One algorithm; requires HasPlan, several nodes, and not kLocal.
Prediction Predict(Algorithm algorithm, const Tuning& tuning, const OpDesc& op,
                   const Topology& topology);

}  // namespace spccl::policy
