// What the model says travels, against the plans themselves.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "collective/plan/make_plan.h"
#include "collective/policy/choose_plan.h"
#include "collective/policy/fastest_format.h"
#include "collective/policy/wire_format.h"
#include "gtest/gtest.h"
#include "kernels/redop.h"

namespace spccl::policy {
namespace {

constexpr OpKind kAllOps[] = {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllReduce,
                              OpKind::kBroadcast, OpKind::kScatter};

// Bytes that the busiest node sends to others, or gets from them, by the plan's steps.
double BusiestNode(const plan::Plan& plan, const std::vector<uint32_t>& node_of_rank,
                   const Tuning& tuning, const OpDesc& op, double elements_of_chunk) {
  const auto node = [&](uint32_t self) { return node_of_rank[plan.members[self][0]]; };
  std::vector<double> in(node_of_rank.size());
  std::vector<double> out(node_of_rank.size());
  for (uint32_t self = 0; self < plan.participants(); ++self) {
    for (const plan::Step& step : plan.steps[self]) {
      if (!plan::Sends(step.kind) || node(self) == node(step.to)) continue;
      uint32_t ranks = step.contributions;
      if (plan::Combines(step.kind)) ranks += static_cast<uint32_t>(plan.members[self].size());
      const bool partial = step.phase == Phase::kReduceScatter && ranks > 1;
      const DType type = partial ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
      const double width = static_cast<double>(SizeOf(type));
      const double density =
          1 - std::pow(1 - tuning.densities[static_cast<size_t>(op.kind)], ranks);
      const Format format = WireFormat(tuning.codec, tuning.costs, width, density);
      const double bytes = elements_of_chunk * BytesPerElement(format, width, density);
      out[node(self)] += bytes;
      in[node(step.to)] += bytes;
    }
  }
  return std::max(*std::max_element(in.begin(), in.end()),
                  *std::max_element(out.begin(), out.end()));
}

void ExpectAsThePlan(uint32_t nodes, uint32_t ranks_a_node, double density, DType dtype,
                     double tolerance) {
  std::vector<uint32_t> node_of_rank;
  for (uint32_t rank = 0; rank < nodes * ranks_a_node; ++rank) node_of_rank.push_back(rank % nodes);
  Tuning tuning;
  tuning.slice_bytes = uint64_t{1} << 40;  // one header a chunk
  tuning.densities.fill(density);
  for (const OpKind kind : kAllOps) {
    for (int code = 0; code < kAlgorithmCount; ++code) {
      const auto algorithm = static_cast<Algorithm>(code);
      if (algorithm == Algorithm::kLocal || !HasPlan(algorithm, kind)) continue;
      const plan::Plan plan = plan::MakePlan(algorithm, kind, node_of_rank, 0);
      const uint64_t chunk = 1 << 20;
      const bool shares = kind != OpKind::kAllReduce && kind != OpKind::kBroadcast;
      const OpDesc op{.kind = kind, .dtype = dtype, .count = shares ? chunk : chunk * plan.chunks};
      const double expected =
          BusiestNode(plan, node_of_rank, tuning, op, static_cast<double>(chunk));
      const Prediction found = Predict(algorithm, tuning, op, Topology::Of(node_of_rank));
      EXPECT_NEAR(found.wire_bytes / expected, 1, tolerance)
          << NameOf(algorithm) << " " << NameOf(kind) << " " << nodes << " nodes of "
          << ranks_a_node << ", density " << density;
    }
  }
}

TEST(PredictTest, CountsWhatPowersOfTwoSend) {
  for (const uint32_t nodes : {2U, 4U, 16U}) {
    for (const double density : {1.0, 0.1, 0.01}) {
      ExpectAsThePlan(nodes, 1, density, DType::kFloat32, 0.001);
      ExpectAsThePlan(nodes, 3, density, DType::kBfloat16, 0.001);
    }
  }
}

TEST(PredictTest, IsNearWhatOthersSend) {
  for (const uint32_t nodes : {3U, 5U, 6U, 13U}) {
    for (const double density : {1.0, 0.01}) {
      ExpectAsThePlan(nodes, 1, density, DType::kFloat32, 0.3);
      ExpectAsThePlan(nodes, 2, density, DType::kFloat32, 0.3);
    }
  }
}

}  // namespace
}  // namespace spccl::policy
