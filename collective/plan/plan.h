// A plan: what every participant of a collective does, as data. Pure; no memory, no I/O.
//
// A participant is a set of ranks that share a daemon: one rank each in a flat plan, a node's ranks
// in a two-level plan. Its input to a reduction is the reduction of its members' inputs, and what
// it writes to its output goes to all members' outputs; so the local halves of a two-level plan are
// no steps of their own.
//
// A plan speaks of chunks, never of bytes: which elements chunk c is, is the runtime's business.
// The runtime cuts every chunk into slices; slice s of all chunks runs the whole plan by itself (a
// lane), independent of the other slices.
//
// A new algorithm is one more function that returns a Plan; what its steps may not say yet becomes
// one more StepKind, with its rule in plan/check.cc and its code in the runtime.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "collective/op.h"
#include "collective/phase.h"
#include "collective/plan/members.h"

namespace spccl::plan {

// What a step reads beside what it receives, by chunk:
//
// kInput    the members' send buffers, not after the output of the same chunk was written: it may
//           lie in the same place. All-gather: chunk c is rank c's send buffer.
// kPartial  what kReduceKeep has kept, in the type of partial sums.
// kOutput   final values in the members' receive buffers. Reduce-scatter and scatter: chunk c is
//           rank c's receive buffer, only.
enum class Operand : uint8_t { kInput, kPartial, kOutput };
inline constexpr int kOperandCount = 3;

constexpr std::string_view NameOf(Operand operand) {
  constexpr std::string_view kNames[kOperandCount] = {"input", "partial", "output"};
  return kNames[static_cast<int>(operand)];
}

enum class StepKind : uint8_t {
  kCopy,           // output[chunk] = input[chunk]
  kSend,           // send operand[chunk] to `to`
  kForward,        // receive from `from`, send it as it came to `to`, store nothing
  kReduceForward,  // receive from `from`, combine with operand[chunk], send to `to`
  kReduceKeep,     // receive from `from`, combine with operand[chunk], partial[chunk] = result
  kReduceStore,    // receive from `from`, combine with operand[chunk], output[chunk] = result
  kStore,          // receive from `from`, output[chunk] = what came
  kStoreForward,   // the same, and send what came, as it came, to `to`
};
inline constexpr int kStepKindCount = 8;

constexpr std::string_view NameOf(StepKind kind) {
  constexpr std::string_view kNames[kStepKindCount] = {
      "copy",        "send",         "forward", "reduce-forward",
      "reduce-keep", "reduce-store", "store",   "store-forward"};
  return kNames[static_cast<int>(kind)];
}

constexpr bool Receives(StepKind kind) {
  return kind != StepKind::kCopy && kind != StepKind::kSend;
}
constexpr bool Sends(StepKind kind) {
  return kind == StepKind::kSend || kind == StepKind::kForward ||
         kind == StepKind::kReduceForward || kind == StepKind::kStoreForward;
}
constexpr bool Combines(StepKind kind) {
  return kind == StepKind::kReduceForward || kind == StepKind::kReduceKeep ||
         kind == StepKind::kReduceStore;
}
constexpr bool Stores(StepKind kind) {
  return kind == StepKind::kCopy || kind == StepKind::kReduceStore || kind == StepKind::kStore ||
         kind == StepKind::kStoreForward;
}

inline constexpr uint32_t kNobody = UINT32_MAX;

// Partial sums travel in kReduceScatter, in the accumulator's type if more than one rank's
// contribution is in them; final values travel in kAllGather, in the operation's type.
struct Step {
  StepKind kind;
  Operand operand;  // of kSend and of what combines; else kInput
  Phase phase;
  uint32_t chunk;
  uint32_t from;  // participant that sends what this step receives; kNobody if it receives nothing
  uint32_t to;    // participant that receives what this step sends; kNobody if it sends nothing
  // Ranks (not participants) whose contributions are in what this step receives (in what it sends
  // or copies, if it receives nothing). Tells the type of a frame's values: see docs/adr/0003.
  uint32_t contributions;
  bool operator==(const Step&) const = default;
};

// Whether `next`, which comes right behind `step`, sends the frame that `step` has sent: the
// runtime encodes it once (split, direct all-gather), or passes on what came (broadcast by a tree).
constexpr bool SharesFrame(const Step& step, const Step& next) {
  if (next.kind != StepKind::kSend || next.chunk != step.chunk || next.phase != step.phase) {
    return false;
  }
  if (step.kind == StepKind::kStoreForward) return next.operand == Operand::kOutput;
  return step.kind == StepKind::kSend && next.operand == step.operand;
}

struct Plan {
  OpKind op = OpKind::kAllReduce;
  uint32_t root = 0;  // the rank; broadcast and scatter only
  // All-reduce and broadcast: equal parts of the whole. Else one for each rank, in the order of
  // ranks: chunk r belongs to rank r and to the participant that has it.
  uint32_t chunks = 1;
  Members members;                       // by participant
  std::vector<std::vector<Step>> steps;  // by participant, each in the order in which it does them

  uint32_t participants() const { return static_cast<uint32_t>(steps.size()); }
  uint32_t ranks() const { return RanksIn(members); }
};

}  // namespace spccl::plan
