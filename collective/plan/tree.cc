#include "collective/plan/tree.h"

#include <bit>
#include <utility>

#include "base/status.h"
#include "collective/plan/steps.h"

namespace spccl::plan {
namespace {

// Participants are numbered from the root on.
class Numbering {
 public:
  Numbering(const Plan& plan, uint32_t root)
      : participants_(plan.participants()), root_(ParticipantOfRank(plan.members)[root]) {}

  uint32_t count() const { return participants_; }
  uint32_t At(uint32_t number) const { return (root_ + number) % participants_; }

 private:
  uint32_t participants_, root_;
};

class ScatterMaker {
 public:
  ScatterMaker(Members members, uint32_t root) {
    const uint32_t ranks = RanksIn(members);
    plan_ = EmptyPlan(OpKind::kScatter, std::move(members), root, ranks);
  }

  Plan Make() {
    const Numbering numbers(plan_, plan_.root);
    for (uint32_t number = 0; number < numbers.count(); ++number) at_.push_back(numbers.At(number));
    for (const uint32_t number : Subtree(0, std::bit_width(numbers.count() - 1))) Deliver(number);
    return std::move(plan_);
  }

 private:
  // Of the participants `top` to `top` + 2^`height`: the largest subtree first, the top last.
  std::vector<uint32_t> Subtree(uint32_t top, uint32_t height) const {
    if (top >= at_.size()) return {};
    std::vector<uint32_t> numbers;
    for (uint32_t t = height; t-- > 0;) {
      const std::vector<uint32_t> below = Subtree(top + (1U << t), t);
      numbers.insert(numbers.end(), below.begin(), below.end());
    }
    numbers.push_back(top);
    return numbers;
  }

  // The way of one participant's chunks: from its highest bit to its lowest.
  void Deliver(uint32_t number) {
    for (const uint32_t chunk : plan_.members[at_[number]]) {
      if (number == 0) {
        plan_.steps[at_[0]].push_back(CopyStep(Phase::kAllGather, chunk, 1));
        continue;
      }
      uint32_t before = kNobody;
      uint32_t at = 0;
      while (at != number) {
        const uint32_t next = at | std::bit_floor(number ^ at);
        plan_.steps[at_[at]].push_back(
            before == kNobody ? SendStep(Operand::kInput, Phase::kAllGather, chunk, at_[next], 1)
                              : PassStep(StepKind::kForward, chunk, before, at_[next], 1));
        before = at_[at];
        at = next;
      }
      plan_.steps[at_[at]].push_back(PassStep(StepKind::kStore, chunk, before, kNobody, 1));
    }
  }

  Plan plan_;
  std::vector<uint32_t> at_;  // participant, by number
};

}  // namespace

Plan MakeBinomialBroadcast(Members members, uint32_t root) {
  SPCCL_CHECK(root < RanksIn(members));
  Plan plan = EmptyPlan(OpKind::kBroadcast, std::move(members), root, 1);
  const Numbering numbers(plan, root);
  for (uint32_t number = 0; number < numbers.count(); ++number) {
    std::vector<Step>& steps = plan.steps[numbers.At(number)];
    const uint32_t from = number == 0 ? kNobody : numbers.At(number - std::bit_floor(number));
    if (number == 0) steps.push_back(CopyStep(Phase::kAllGather, 0, 1));
    bool stored = number == 0;
    for (uint32_t ahead = 1U << std::bit_width(number); number + ahead < numbers.count();
         ahead *= 2) {
      const uint32_t to = numbers.At(number + ahead);
      steps.push_back(stored ? SendStep(Operand::kOutput, Phase::kAllGather, 0, to, 1)
                             : PassStep(StepKind::kStoreForward, 0, from, to, 1));
      stored = true;
    }
    if (!stored) steps.push_back(PassStep(StepKind::kStore, 0, from, kNobody, 1));
  }
  return plan;
}

Plan MakeBinomialScatter(Members members, uint32_t root) {
  SPCCL_CHECK(root < RanksIn(members));
  return ScatterMaker(std::move(members), root).Make();
}

}  // namespace spccl::plan
