#include "collective/plan/halving_doubling.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "collective/plan/cores.h"
#include "collective/plan/steps.h"

namespace spccl::plan {
namespace {

struct Chunk {
  uint32_t number;
  bool of_extra;  // belongs to the core's extra
};

class HalvingDoublingMaker {
 public:
  HalvingDoublingMaker(OpKind op, Members members)
      : cores_(static_cast<uint32_t>(members.size())), chunks_(cores_.count()) {
    const uint32_t chunks = op == OpKind::kAllReduce ? cores_.count() : RanksIn(members);
    plan_ = EmptyPlan(op, std::move(members), 0, chunks);
    ranks_ = plan_.ranks();
    for (uint32_t core = 0; core < cores_.count(); ++core) {
      if (op == OpKind::kAllReduce) {
        chunks_[core] = {{core, false}};
        continue;
      }
      for (const uint32_t rank : plan_.members[Self(core)]) chunks_[core].push_back({rank, false});
      if (!HasExtra(core)) continue;
      for (const uint32_t rank : plan_.members[Extra(core)]) chunks_[core].push_back({rank, true});
    }
  }

  Plan Make() {
    if (plan_.participants() == 1) {
      CopyAll(&plan_);
      return std::move(plan_);
    }
    for (uint32_t core = 0; core < cores_.count(); ++core) {
      if (Reduces(plan_.op)) {
        if (HasExtra(core)) Fold(core);
        for (uint32_t bit = cores_.rounds(); bit-- > 0;) Halve(core, bit);
        if (HasExtra(core)) Unfold(core);
      }
      if (plan_.op != OpKind::kReduceScatter) Double(core);
    }
    return std::move(plan_);
  }

 private:
  uint32_t Self(uint32_t core) const { return cores_.ParticipantOf(core); }
  uint32_t Extra(uint32_t core) const { return cores_.ExtraOf(core); }
  bool HasExtra(uint32_t core) const { return Extra(core) != kNobody; }
  bool OwnedByExtraOf(uint32_t core, uint32_t chunk) const {
    return std::any_of(chunks_[core].begin(), chunks_[core].end(),
                       [&](const Chunk& one) { return one.of_extra && one.number == chunk; });
  }
  void Add(uint32_t participant, const Step& step) { plan_.steps[participant].push_back(step); }

  void Fold(uint32_t core) {
    const uint32_t extra = Extra(core);
    const uint32_t came = Size(plan_, extra);
    for (uint32_t chunk = 0; chunk < plan_.chunks; ++chunk) {
      if (OwnedByExtraOf(core, chunk)) continue;
      Add(extra, SendStep(Operand::kInput, Phase::kReduceScatter, chunk, Self(core), came));
      Add(Self(core), ReduceStep(StepKind::kReduceKeep, Operand::kInput, chunk, extra, came));
    }
  }

  // Ranks whose contributions `core` has in the chunk before the exchange over `bit`.
  uint32_t Gathered(uint32_t core, uint32_t bit, uint32_t owner, const Chunk& chunk) const {
    const uint32_t step = 2U << bit;
    uint32_t ranks = 0;
    for (uint32_t one = core % step; one < cores_.count(); one += step) {
      ranks += Size(plan_, Self(one));
      if (HasExtra(one) && !(chunk.of_extra && one == owner)) ranks += Size(plan_, Extra(one));
    }
    return ranks;
  }

  // What `core` has of the chunk before the exchange over `bit`.
  Operand Has(uint32_t core, uint32_t bit, uint32_t owner, const Chunk& chunk) const {
    const bool folded = HasExtra(core) && !(chunk.of_extra && owner == core);
    return folded || bit + 1 < cores_.rounds() ? Operand::kPartial : Operand::kInput;
  }

  // Exchanges with the core that differs in `bit`: its half of the chunks for this core's.
  void Halve(uint32_t core, uint32_t bit) {
    const uint32_t other = core ^ 1U << bit;
    std::vector<Step> sends;
    std::vector<Step> receives;
    const auto each = [&](uint32_t half, const auto& add) {
      const uint32_t first = half >> bit << bit;
      for (uint32_t owner = first; owner < first + (1U << bit); ++owner) {
        for (const Chunk& chunk : chunks_[owner]) add(owner, chunk);
      }
    };
    each(other, [&](uint32_t owner, const Chunk& chunk) {
      sends.push_back(SendStep(Has(core, bit, owner, chunk), Phase::kReduceScatter, chunk.number,
                               Self(other), Gathered(core, bit, owner, chunk)));
    });
    each(core, [&](uint32_t owner, const Chunk& chunk) {
      const bool stores = bit == 0 && !chunk.of_extra;
      receives.push_back(ReduceStep(stores ? StepKind::kReduceStore : StepKind::kReduceKeep,
                                    Has(core, bit, owner, chunk), chunk.number, Self(other),
                                    Gathered(other, bit, owner, chunk)));
    });
    Interleave(Self(core), sends, receives);
  }

  // A few sends ahead of the receives, so that neither side waits and few frames do.
  void Interleave(uint32_t self, const std::vector<Step>& sends,
                  const std::vector<Step>& receives) {
    for (size_t i = 0; i < std::max(sends.size(), receives.size() + kChunkBatch); ++i) {
      if (i < sends.size()) Add(self, sends[i]);
      if (i + 1 >= kChunkBatch && i + 1 - kChunkBatch < receives.size()) {
        Add(self, receives[i + 1 - kChunkBatch]);
      }
    }
  }

  // Gives the extra of a reduce-scatter all but its own contribution to its own chunks.
  void Unfold(uint32_t core) {
    const uint32_t extra = Extra(core);
    const uint32_t others = ranks_ - Size(plan_, extra);
    for (const Chunk& chunk : chunks_[core]) {
      if (!chunk.of_extra) continue;
      Add(Self(core),
          SendStep(Operand::kPartial, Phase::kReduceScatter, chunk.number, extra, others));
      Add(extra,
          ReduceStep(StepKind::kReduceStore, Operand::kInput, chunk.number, Self(core), others));
    }
  }

  // Each core gets the chunks of core ^ 0, core ^ 1, core ^ 2, ... in this order: those that differ
  // from it in bit b at most come over bit b, when the sender has got them, in its own such order.
  void Double(uint32_t core) {
    const uint32_t self = Self(core);
    const uint32_t contributions = Reduces(plan_.op) ? ranks_ : 1;
    for (const Chunk& chunk : chunks_[core]) {
      if (chunk.of_extra) SendOwn(Extra(core), chunk.number, {self}, contributions);
    }
    for (uint32_t distance = 0; distance < cores_.count(); ++distance) {
      const uint32_t bits = static_cast<uint32_t>(std::bit_width(distance));  // gone over so far
      for (const Chunk& chunk : chunks_[core ^ distance]) {
        const bool from_extra = distance == 0 && chunk.of_extra;
        std::vector<uint32_t> to;
        for (uint32_t bit = bits; bit < cores_.rounds(); ++bit)
          to.push_back(Self(core ^ 1U << bit));
        if (HasExtra(core) && !from_extra) to.push_back(Extra(core));
        if (distance == 0 && !chunk.of_extra) {
          SendOwn(self, chunk.number, to, contributions);
          if (HasExtra(core)) StoreAtExtra(core, chunk.number, contributions);
          continue;
        }
        Pass(self, chunk.number, from_extra ? Extra(core) : Self(core ^ std::bit_floor(distance)),
             to, contributions);
        if (HasExtra(core) && !from_extra) StoreAtExtra(core, chunk.number, contributions);
      }
    }
  }

  void StoreAtExtra(uint32_t core, uint32_t chunk, uint32_t contributions) {
    Add(Extra(core), PassStep(StepKind::kStore, chunk, Self(core), kNobody, contributions));
  }

  void SendOwn(uint32_t self, uint32_t chunk, const std::vector<uint32_t>& to,
               uint32_t contributions) {
    if (!Reduces(plan_.op)) Add(self, CopyStep(Phase::kAllGather, chunk, 1));
    for (const uint32_t one : to) {
      Add(self, SendStep(Operand::kOutput, Phase::kAllGather, chunk, one, contributions));
    }
  }

  void Pass(uint32_t self, uint32_t chunk, uint32_t from, const std::vector<uint32_t>& to,
            uint32_t contributions) {
    if (to.empty()) {
      Add(self, PassStep(StepKind::kStore, chunk, from, kNobody, contributions));
      return;
    }
    Add(self, PassStep(StepKind::kStoreForward, chunk, from, to[0], contributions));
    for (size_t i = 1; i < to.size(); ++i) {
      Add(self, SendStep(Operand::kOutput, Phase::kAllGather, chunk, to[i], contributions));
    }
  }

  Cores cores_;
  std::vector<std::vector<Chunk>> chunks_;  // by core: its own and its extra's
  Plan plan_;
  uint32_t ranks_ = 0;
};

}  // namespace

Plan MakeHalvingDoubling(OpKind op, Members members) {
  SPCCL_CHECK(!HasRoot(op) && !members.empty());
  return HalvingDoublingMaker(op, std::move(members)).Make();
}

}  // namespace spccl::plan
