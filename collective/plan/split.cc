#include "collective/plan/split.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/status.h"
#include "collective/plan/steps.h"

namespace spccl::plan {
namespace {

class SplitMaker {
 public:
  SplitMaker(OpKind op, Members members) {
    const bool parts = op == OpKind::kAllReduce;
    const uint32_t participants = static_cast<uint32_t>(members.size());
    for (uint32_t self = 0; self < participants; ++self) {
      owned_.push_back(parts ? std::vector<uint32_t>{self} : members[self]);
    }
    const uint32_t chunks = parts ? participants : RanksIn(members);
    plan_ = EmptyPlan(op, std::move(members), 0, chunks);
    ranks_ = plan_.ranks();
  }

  Plan Make() {
    if (plan_.participants() == 1) {
      CopyAll(&plan_);
      return std::move(plan_);
    }
    size_t most = 0;
    for (const std::vector<uint32_t>& owned : owned_) most = std::max(most, owned.size());
    for (uint32_t self = 0; self < plan_.participants(); ++self) {
      for (size_t first = 0; first < most; first += kChunkBatch) {
        if (Reduces(plan_.op)) ReduceScatter(self, first);
        if (plan_.op != OpKind::kReduceScatter) AllGather(self, first);
      }
    }
    return std::move(plan_);
  }

 private:
  std::span<const uint32_t> Batch(uint32_t owner, size_t first) const {
    const std::span<const uint32_t> owned = owned_[owner];
    if (first >= owned.size()) return {};
    return owned.subspan(first, std::min<size_t>(kChunkBatch, owned.size() - first));
  }

  // Everybody begins with another one, so that nobody is sent to by all at once.
  uint32_t Ahead(uint32_t self, uint32_t distance) const {
    return (self + distance) % plan_.participants();
  }
  uint32_t Behind(uint32_t self, uint32_t distance) const {
    return (self + plan_.participants() - distance) % plan_.participants();
  }

  void ReduceScatter(uint32_t self, size_t first) {
    std::vector<Step>& steps = plan_.steps[self];
    const uint32_t others = plan_.participants() - 1;
    for (uint32_t distance = 1; distance <= others; ++distance) {
      const uint32_t owner = Ahead(self, distance);
      for (const uint32_t chunk : Batch(owner, first)) {
        steps.push_back(
            SendStep(Operand::kInput, Phase::kReduceScatter, chunk, owner, Size(plan_, self)));
      }
    }
    for (const uint32_t chunk : Batch(self, first)) {
      for (uint32_t distance = 1; distance <= others; ++distance) {
        const uint32_t from = Behind(self, distance);
        steps.push_back(ReduceStep(
            distance == others ? StepKind::kReduceStore : StepKind::kReduceKeep,
            distance == 1 ? Operand::kInput : Operand::kPartial, chunk, from, Size(plan_, from)));
      }
    }
  }

  void AllGather(uint32_t self, size_t first) {
    std::vector<Step>& steps = plan_.steps[self];
    const bool sums = Reduces(plan_.op);
    const uint32_t contributions = sums ? ranks_ : 1;
    const uint32_t others = plan_.participants() - 1;
    for (const uint32_t chunk : Batch(self, first)) {
      if (!sums) steps.push_back(CopyStep(Phase::kAllGather, chunk, 1));
      for (uint32_t distance = 1; distance <= others; ++distance) {
        steps.push_back(SendStep(Operand::kOutput, Phase::kAllGather, chunk, Ahead(self, distance),
                                 contributions));
      }
    }
    for (uint32_t distance = 1; distance <= others; ++distance) {
      const uint32_t from = Behind(self, distance);
      for (const uint32_t chunk : Batch(from, first)) {
        steps.push_back(PassStep(StepKind::kStore, chunk, from, kNobody, contributions));
      }
    }
  }

  Plan plan_;
  uint32_t ranks_ = 0;
  std::vector<std::vector<uint32_t>> owned_;  // chunks, by participant
};

}  // namespace

Plan MakeSplit(OpKind op, Members members) {
  SPCCL_CHECK(Reduces(op) && !members.empty());
  return SplitMaker(op, std::move(members)).Make();
}

Plan MakeDirectAllGather(Members members) {
  SPCCL_CHECK(!members.empty());
  return SplitMaker(OpKind::kAllGather, std::move(members)).Make();
}

}  // namespace spccl::plan
