#include "collective/plan/ring.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "collective/plan/steps.h"

namespace spccl::plan {
namespace {

// A participant's chunks are those of its members, or one part of the whole.
class RingMaker {
 public:
  RingMaker(OpKind op, Members members, uint32_t root) {
    plan_.op = op;
    plan_.members = std::move(members);
    plan_.root = op == OpKind::kBroadcast ? root : 0;
    ranks_ = plan_.ranks();
    participants_ = static_cast<uint32_t>(plan_.members.size());
    plan_.steps.resize(participants_);
  }

  Plan Make() {
    switch (plan_.op) {
      case OpKind::kBroadcast:
        Broadcast();
        break;
      case OpKind::kAllReduce:
        plan_.chunks = participants_;
        for (uint32_t self = 0; self < participants_; ++self) owned_.push_back({self});
        break;
      default:
        plan_.chunks = ranks_;
        owned_ = plan_.members;
    }
    size_t most = 0;
    for (const std::vector<uint32_t>& owned : owned_) most = std::max(most, owned.size());
    for (size_t first = 0; first < most; first += kChunkBatch) {
      for (uint32_t self = 0; self < participants_; ++self) Batch(self, first);
    }
    return std::move(plan_);
  }

 private:
  uint32_t Back(uint32_t self, uint32_t distance) const {
    return (self + participants_ - distance) % participants_;
  }
  uint32_t Size(uint32_t participant) const {
    return static_cast<uint32_t>(plan_.members[participant].size());
  }

  // The chunks of this batch that the participant `distance` places before `self` owns.
  std::span<const uint32_t> Chunks(uint32_t self, uint32_t distance, size_t first) const {
    const std::span<const uint32_t> owned = owned_[Back(self, distance)];
    if (first >= owned.size()) return {};
    return owned.subspan(first, std::min<size_t>(kChunkBatch, owned.size() - first));
  }

  void Add(uint32_t self, StepKind kind, Operand operand, Phase phase, uint32_t chunk,
           uint32_t contributions) {
    plan_.steps[self].push_back({.kind = kind,
                                 .operand = operand,
                                 .phase = phase,
                                 .chunk = chunk,
                                 .from = Receives(kind) ? Back(self, 1) : kNobody,
                                 .to = Sends(kind) ? Back(self, participants_ - 1) : kNobody,
                                 .contributions = contributions});
  }

  void Batch(uint32_t self, size_t first) {
    if (participants_ == 1) {
      const bool reduces = Reduces(plan_.op);
      for (const uint32_t chunk : Chunks(self, 0, first)) {
        Add(self, StepKind::kCopy, Operand::kInput,
            reduces ? Phase::kReduceScatter : Phase::kAllGather, chunk, reduces ? ranks_ : 1);
      }
      return;
    }
    if (Reduces(plan_.op)) ReduceScatter(self, first);
    if (plan_.op != OpKind::kReduceScatter) AllGather(self, first);
  }

  // Ends with the participant's own chunks complete in its output.
  void ReduceScatter(uint32_t self, size_t first) {
    const auto add = [&](StepKind kind, uint32_t distance, uint32_t contributions) {
      for (const uint32_t chunk : Chunks(self, distance, first)) {
        Add(self, kind, Operand::kInput, Phase::kReduceScatter, chunk, contributions);
      }
    };
    add(StepKind::kSend, 1, Size(self));
    uint32_t came = 0;  // ranks whose contributions a chunk has that comes from `distance` before
    for (uint32_t distance = 2; distance < participants_; ++distance) {
      came += Size(Back(self, distance - 1));
      add(StepKind::kReduceForward, distance, came);
    }
    add(StepKind::kReduceStore, 0, ranks_ - Size(self));
  }

  void AllGather(uint32_t self, size_t first) {
    const bool gathers_sums = Reduces(plan_.op);
    const uint32_t contributions = gathers_sums ? ranks_ : 1;
    for (const uint32_t chunk : Chunks(self, 0, first)) {
      if (!gathers_sums) Add(self, StepKind::kCopy, Operand::kInput, Phase::kAllGather, chunk, 1);
      Add(self, StepKind::kSend, Operand::kOutput, Phase::kAllGather, chunk, contributions);
    }
    for (uint32_t distance = 1; distance < participants_; ++distance) {
      const bool ends = distance + 1 == participants_;
      for (const uint32_t chunk : Chunks(self, distance, first)) {
        Add(self, ends ? StepKind::kStore : StepKind::kStoreForward, Operand::kInput,
            Phase::kAllGather, chunk, contributions);
      }
    }
  }

  void Broadcast() {
    const uint32_t root = ParticipantOfRank(plan_.members)[plan_.root];
    for (uint32_t self = 0; self < participants_; ++self) {
      const bool ends = Back(self, participants_ - 1) == root;
      if (self == root) {
        Add(self, StepKind::kCopy, Operand::kInput, Phase::kAllGather, 0, 1);
        if (!ends) Add(self, StepKind::kSend, Operand::kOutput, Phase::kAllGather, 0, 1);
      } else {
        Add(self, ends ? StepKind::kStore : StepKind::kStoreForward, Operand::kInput,
            Phase::kAllGather, 0, 1);
      }
    }
  }

  Plan plan_;
  uint32_t ranks_ = 0, participants_ = 0;
  std::vector<std::vector<uint32_t>> owned_;  // chunks, by participant
};

}  // namespace

Plan MakeRing(OpKind op, Members members, uint32_t root) {
  SPCCL_CHECK(op != OpKind::kScatter && !members.empty() && root < RanksIn(members));
  return RingMaker(op, std::move(members), root).Make();
}

}  // namespace spccl::plan
