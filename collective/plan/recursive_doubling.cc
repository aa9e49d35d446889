#include "collective/plan/recursive_doubling.h"

#include <utility>

#include "base/status.h"
#include "collective/plan/cores.h"
#include "collective/plan/steps.h"

namespace spccl::plan {
namespace {

class RecursiveDoublingMaker {
 public:
  explicit RecursiveDoublingMaker(Members members)
      : plan_(EmptyPlan(OpKind::kAllReduce, std::move(members), 0, 1)),
        ranks_(plan_.ranks()),
        cores_(plan_.participants()) {}

  Plan Make() {
    for (uint32_t core = 0; core < cores_.count(); ++core) {
      if (cores_.ExtraOf(core) != kNobody) Extra(core);
      Core(core);
    }
    return std::move(plan_);
  }

 private:
  // Ranks whose contributions a core has after `rounds` exchanges.
  uint32_t Gathered(uint32_t core, uint32_t rounds) const {
    uint32_t ranks = 0;
    const uint32_t first = core >> rounds << rounds;
    for (uint32_t one = first; one < first + (1U << rounds); ++one) {
      ranks += Size(plan_, cores_.ParticipantOf(one));
      if (cores_.ExtraOf(one) != kNobody) ranks += Size(plan_, cores_.ExtraOf(one));
    }
    return ranks;
  }

  void Extra(uint32_t core) {
    const uint32_t self = cores_.ExtraOf(core);
    const uint32_t peer = cores_.ParticipantOf(core);
    plan_.steps[self] = {
        SendStep(Operand::kInput, Phase::kReduceScatter, 0, peer, Size(plan_, self)),
        PassStep(StepKind::kStore, 0, peer, kNobody, ranks_)};
  }

  void Core(uint32_t core) {
    std::vector<Step>& steps = plan_.steps[cores_.ParticipantOf(core)];
    const uint32_t extra = cores_.ExtraOf(core);
    Operand operand = Operand::kInput;
    if (extra != kNobody) {
      steps.push_back(ReduceStep(StepKind::kReduceKeep, operand, 0, extra, Size(plan_, extra)));
      operand = Operand::kPartial;
    }
    for (uint32_t round = 0; round < cores_.rounds(); ++round) {
      const uint32_t other = core ^ 1U << round;
      const uint32_t peer = cores_.ParticipantOf(other);
      const bool last = round + 1 == cores_.rounds();
      steps.push_back(SendStep(operand, Phase::kReduceScatter, 0, peer, Gathered(core, round)));
      steps.push_back(ReduceStep(last ? StepKind::kReduceStore : StepKind::kReduceKeep, operand, 0,
                                 peer, Gathered(other, round)));
      operand = Operand::kPartial;
    }
    if (extra != kNobody) {
      steps.push_back(SendStep(Operand::kOutput, Phase::kAllGather, 0, extra, ranks_));
    }
  }

  Plan plan_;
  const uint32_t ranks_;
  const Cores cores_;
};

}  // namespace

Plan MakeRecursiveDoubling(Members members) {
  SPCCL_CHECK(!members.empty());
  if (members.size() == 1) {
    Plan plan = EmptyPlan(OpKind::kAllReduce, std::move(members), 0, 1);
    CopyAll(&plan);
    return plan;
  }
  return RecursiveDoublingMaker(std::move(members)).Make();
}

}  // namespace spccl::plan
