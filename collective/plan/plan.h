// A plan: what every participant of a collective does, as data. Pure; no memory, no I/O.
//
// A plan speaks of chunks, never of bytes: which elements chunk c is, is the runtime's business.
// The runtime cuts every chunk into slices; slice s of all chunks runs the whole plan by itself (a
// lane), independent of the other slices.
//
// A new algorithm (recursive doubling, two levels, split + all-gather) is one more function that
// returns a Plan; what its steps may not say yet becomes one more StepKind, with its rule in
// plan/check.cc and its code in the runtime.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "collective/op.h"
#include "collective/phase.h"

namespace spccl::plan {

enum class StepKind : uint8_t {
  kCopy,           // output[chunk] = input[chunk]
  kSend,           // send to `to`: in kReduceScatter input[chunk], in kAllGather output[chunk]
  kReduceForward,  // receive from `from`, combine with input[chunk], send to `to`
  kReduceStore,    // receive from `from`, combine with input[chunk], output[chunk] = result
  kStore,          // receive from `from`, output[chunk] = what came
  kStoreForward,   // the same, and send what came, as it came, to `to`
};
inline constexpr int kStepKindCount = 6;

constexpr std::string_view NameOf(StepKind kind) {
  constexpr std::string_view kNames[kStepKindCount] = {"copy",         "send",  "reduce-forward",
                                                       "reduce-store", "store", "store-forward"};
  return kNames[static_cast<int>(kind)];
}

constexpr bool Receives(StepKind kind) {
  return kind != StepKind::kCopy && kind != StepKind::kSend;
}
constexpr bool Sends(StepKind kind) {
  return kind == StepKind::kSend || kind == StepKind::kReduceForward ||
         kind == StepKind::kStoreForward;
}

inline constexpr uint32_t kNobody = UINT32_MAX;

struct Step {
  StepKind kind;
  Phase phase;
  uint32_t chunk;
  uint32_t from;  // who sends what this step receives; kNobody if it receives nothing
  uint32_t to;    // who receives what this step sends; kNobody if it sends nothing
  // Ranks whose contributions are in what this step receives (in what it sends or copies, if it
  // receives nothing). Tells the type that a frame's values have: see docs/adr/0003.
  uint32_t contributions;
  bool operator==(const Step&) const = default;
};

struct Plan {
  OpKind op = OpKind::kAllReduce;
  uint32_t root = 0;    // broadcast only
  uint32_t chunks = 1;  // of the whole operation; chunk r is rank r's where each rank has its own
  std::vector<std::vector<Step>> steps;  // by participant, each in the order in which it does them

  uint32_t ranks() const { return static_cast<uint32_t>(steps.size()); }
};

}  // namespace spccl::plan
