#include "collective/plan/ring.h"

#include "base/status.h"

namespace spccl::plan {
namespace {

// One participant's steps, written down in order.
class Participant {
 public:
  Participant(uint32_t rank, uint32_t ranks)
      : rank_(rank), ranks_(ranks), next_((rank + 1) % ranks), previous_(Back(1)) {}

  // The rank, or its chunk, `distance` places before this one in the ring.
  uint32_t Back(uint32_t distance) const { return (rank_ + ranks_ - distance % ranks_) % ranks_; }

  void Copy(Phase phase, uint32_t chunk) {
    steps_.push_back({StepKind::kCopy, phase, chunk, kNobody, kNobody, 1});
  }
  void Send(Phase phase, uint32_t chunk, uint32_t contributions) {
    steps_.push_back({StepKind::kSend, phase, chunk, kNobody, next_, contributions});
  }
  void Receive(StepKind kind, Phase phase, uint32_t chunk, uint32_t contributions) {
    const uint32_t to = Sends(kind) ? next_ : kNobody;
    steps_.push_back({kind, phase, chunk, previous_, to, contributions});
  }

  // Ends with this rank's own chunk complete in its output.
  void ReduceScatter() {
    Send(Phase::kReduceScatter, Back(1), 1);
    for (uint32_t distance = 2; distance < ranks_; ++distance) {
      Receive(StepKind::kReduceForward, Phase::kReduceScatter, Back(distance), distance - 1);
    }
    Receive(StepKind::kReduceStore, Phase::kReduceScatter, rank_, ranks_ - 1);
  }

  // Starts with this rank's own chunk in its output, made of `contributions`.
  void AllGather(uint32_t contributions) {
    Send(Phase::kAllGather, rank_, contributions);
    for (uint32_t distance = 1; distance + 1 < ranks_; ++distance) {
      Receive(StepKind::kStoreForward, Phase::kAllGather, Back(distance), contributions);
    }
    Receive(StepKind::kStore, Phase::kAllGather, Back(ranks_ - 1), contributions);
  }

  void Broadcast(uint32_t root) {
    if (rank_ == root) {
      Copy(Phase::kAllGather, 0);
      Send(Phase::kAllGather, 0, 1);
    } else {
      const StepKind kind = next_ == root ? StepKind::kStore : StepKind::kStoreForward;
      Receive(kind, Phase::kAllGather, 0, 1);
    }
  }

  std::vector<Step> Take() { return std::move(steps_); }

 private:
  const uint32_t rank_, ranks_, next_, previous_;
  std::vector<Step> steps_;
};

}  // namespace

Plan MakeRing(OpKind op, uint32_t ranks, uint32_t root) {
  SPCCL_CHECK(ranks > 0 && root < ranks);
  Plan plan{.op = op,
            .root = op == OpKind::kBroadcast ? root : 0,
            .chunks = op == OpKind::kBroadcast ? 1 : ranks,
            .steps = {}};
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    Participant participant(rank, ranks);
    if (ranks == 1) {
      participant.Copy(Reduces(op) ? Phase::kReduceScatter : Phase::kAllGather, 0);
    } else if (op == OpKind::kBroadcast) {
      participant.Broadcast(root);
    } else if (op == OpKind::kAllGather) {
      participant.Copy(Phase::kAllGather, rank);
      participant.AllGather(1);
    } else {
      participant.ReduceScatter();
      if (op == OpKind::kAllReduce) participant.AllGather(ranks);
    }
    plan.steps.push_back(participant.Take());
  }
  return plan;
}

}  // namespace spccl::plan
