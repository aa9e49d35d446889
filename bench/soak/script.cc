#include "bench/soak/script.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace spccl::bench {
namespace {

constexpr double kSparsities[] = {0, 0.3, 0.55, 0.8, 0.95, 0.99, 0.999, 1};
// All ranks' elements together: what a check may take stays in bounds, also with small types.
constexpr uint64_t kMostElements = uint64_t{1} << 22;

// Alike over the powers of two up to `most`, and now and then nothing at all.
uint64_t DrawBytes(Dice& dice, uint64_t most) {
  if (dice.Percent(3)) return 0;
  uint64_t bits = 0;
  while ((most >> (bits + 1)) != 0) ++bits;
  const uint64_t power = uint64_t{1} << dice.Below(bits + 1);
  return std::min(most, power + dice.Below(power));
}

}  // namespace

bool SoakCall::Sends(uint32_t rank) const {
  const bool by_root =
      problem.op.kind == Collective::kBroadcast || problem.op.kind == Collective::kScatter;
  return !by_root || rank == problem.op.root;
}

SoakScript::SoakScript(uint64_t seed, uint32_t ranks, uint64_t max_bytes)
    : dice_(seed), ranks_(ranks), max_bytes_(std::max<uint64_t>(max_bytes, 1)) {
  comms_[0].resize(ranks);
  std::iota(comms_[0].begin(), comms_[0].end(), 0);
}

size_t SoakScript::AnyComm(size_t from) {
  const size_t start = dice_.Below(kMostComms);
  for (size_t i = 0; i < kMostComms; ++i) {
    const size_t comm = (start + i) % kMostComms;
    if (comm >= from && !comms_[comm].empty()) return comm;
  }
  return kMostComms;
}

SoakStep SoakScript::Next() {
  const uint64_t kind = dice_.Below(100);
  if (kind < 50) return Calls(StepKind::kEach, 1);
  if (kind < 65) return Calls(StepKind::kGroup, 4);
  if (kind < 80) return Calls(StepKind::kStreams, 6);
  if (kind < 90) {
    const auto free = std::find_if(comms_.begin(), comms_.end(),
                                   [](const auto& members) { return members.empty(); });
    if (free != comms_.end()) return Join(free - comms_.begin());
  } else if (kind < 96) {
    if (const size_t comm = AnyComm(1); comm < kMostComms) {
      comms_[comm].clear();
      return {.kind = StepKind::kLeave, .comm = comm};
    }
  }
  return {.kind = StepKind::kCodec,
          .comm = AnyComm(0),
          .codec = static_cast<int>(dice_.Below(kExactCodecs))};
}

SoakStep SoakScript::Join(size_t comm) {
  std::vector<uint32_t> members(ranks_);
  std::iota(members.begin(), members.end(), 0);
  for (size_t i = members.size(); i > 1; --i) std::swap(members[i - 1], members[dice_.Below(i)]);
  members.resize(1 + dice_.Below(ranks_));
  comms_[comm] = members;
  return {.kind = StepKind::kJoin, .comm = comm, .members = std::move(members)};
}

SoakStep SoakScript::Calls(StepKind kind, uint64_t most) {
  SoakStep step{.kind = kind};
  const uint64_t count = 1 + dice_.Below(most);
  for (uint64_t i = 0; i < count; ++i) {
    step.calls.push_back(Call(std::max<uint64_t>(max_bytes_ / count, 1)));
  }
  return step;
}

SoakCall SoakScript::Call(uint64_t max_bytes) {
  SoakCall call;
  call.comm = AnyComm(0);
  const uint32_t ranks = static_cast<uint32_t>(comms_[call.comm].size());
  Operation& op = call.problem.op;
  op.kind = static_cast<Collective>(dice_.Below(kCollectiveCount));
  op.dtype = static_cast<DType>(dice_.Below(kDTypeCount));
  op.redop = static_cast<RedOp>(dice_.Below(kRedOpCount));
  op.root = static_cast<uint32_t>(dice_.Below(ranks));
  const bool shared = Shares(op.kind);
  const uint64_t elements =
      std::min(DrawBytes(dice_, max_bytes) / SizeOf(op.dtype), kMostElements / ranks);
  op.count = shared ? elements / ranks : elements;
  call.problem.ranks = ranks;
  call.problem.bytes = (shared ? op.count * ranks : op.count) * SizeOf(op.dtype);
  call.in_place = dice_.Percent(40);
  call.seed = dice_.Draw();
  call.sparsity = dice_.Of<double>(kSparsities);
  call.clustered = dice_.Percent(30);
  return call;
}

}  // namespace spccl::bench
