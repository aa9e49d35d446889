#include "collective/plan/make_plan.h"

#include <utility>

#include "base/status.h"
#include "collective/plan/halving_doubling.h"
#include "collective/plan/recursive_doubling.h"
#include "collective/plan/ring.h"
#include "collective/plan/split.h"
#include "collective/plan/tree.h"

namespace spccl::plan {
namespace {

// FNV-1a, a word at a time, with the high half folded in so that all bits count.
class Hash {
 public:
  void Add(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x100000001b3;
    hash_ ^= hash_ >> 32;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

Plan MakePlan(policy::Algorithm algorithm, OpKind op, std::span<const uint32_t> node_of_rank,
              uint32_t root) {
  using policy::Algorithm;
  SPCCL_CHECK(HasPlan(algorithm, op) && algorithm != Algorithm::kLocal);
  if (algorithm == Algorithm::kRing) return MakeRing(op, FlatMembersByNode(node_of_rank), root);
  Members nodes = NodeMembers(node_of_rank);
  switch (algorithm) {
    case Algorithm::kRecursiveDoubling:
      return MakeRecursiveDoubling(std::move(nodes));
    case Algorithm::kHalvingDoubling:
      return MakeHalvingDoubling(op, std::move(nodes));
    case Algorithm::kSplit:
      return MakeSplit(op, std::move(nodes));
    case Algorithm::kDirect:
      return MakeDirectAllGather(std::move(nodes));
    case Algorithm::kTree:
      return op == OpKind::kScatter ? MakeBinomialScatter(std::move(nodes), root)
                                    : MakeBinomialBroadcast(std::move(nodes), root);
    default:
      return MakeRing(op, std::move(nodes), root);
  }
}

uint64_t Digest(const Plan& plan) {
  Hash hash;
  hash.Add(static_cast<uint64_t>(plan.op));
  hash.Add(plan.root);
  hash.Add(plan.chunks);
  hash.Add(plan.participants());
  for (const std::vector<uint32_t>& members : plan.members) {
    hash.Add(members.size());
    for (const uint32_t rank : members) hash.Add(rank);
  }
  for (const std::vector<Step>& steps : plan.steps) {
    hash.Add(steps.size());
    for (const Step& step : steps) {
      hash.Add(static_cast<uint64_t>(step.kind) << 16 | static_cast<uint64_t>(step.operand) << 8 |
               static_cast<uint64_t>(step.phase));
      hash.Add(uint64_t{step.chunk} << 32 | step.contributions);
      hash.Add(uint64_t{step.from} << 32 | step.to);
    }
  }
  return hash.value();
}

}  // namespace spccl::plan
