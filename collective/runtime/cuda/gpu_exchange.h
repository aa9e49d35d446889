// Within a node: slices travel between GPUs compressed, where their data is sparse enough.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "collective/op.h"
#include "collective/policy/settings.h"
#include "collective/runtime/cuda/coroutine.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/host/step_runner.h"
#include "kernels/format.h"

namespace spccl::runtime {

// Whether the slices of one operation go compressed. The first lane tries, the others go dense
// until it is known: data that is dense pays for one slice. Thread-safe.
class IntraPolicy {
 public:
  // `gpus`: that the operation's ranks use.
  IntraPolicy(const policy::Settings& settings, const OpDesc& op, size_t gpus);

  bool may_compress() const { return format_ != Format::kDense; }
  Format format() const { return format_; }
  bool TriesSparse(uint64_t lane) const {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::kPays || (state == State::kUnknown && lane == 0);
  }
  // What a slice turned out to have, on average of its inputs, and of its result.
  bool Pays(uint64_t nnz, uint64_t elements) const { return IsAbove(nnz, elements, intra_); }
  bool ResultPays(uint64_t nnz, uint64_t elements) const { return IsAbove(nnz, elements, ag_); }
  void Note(bool pays) {
    // Relaxed: whoever learns it a lane late does what it did before.
    state_.store(pays ? State::kPays : State::kDoesNot, std::memory_order_relaxed);
  }

 private:
  enum class State : uint8_t { kUnknown, kPays, kDoesNot };
  static bool IsAbove(uint64_t nnz, uint64_t elements, double threshold) {
    return elements > 0 && 1 - static_cast<double>(nnz) / static_cast<double>(elements) > threshold;
  }

  Format format_ = Format::kDense;
  double intra_ = 1, ag_ = 1;
  std::atomic<State> state_ = State::kDoesNot;
};

// A run of a participant that has nobody to send to (the plan of one node), as RunOnGpu: each GPU
// compresses its ranks' slice once, into a frame of its own; `rail` adds up the frames of the
// others in rank order, and compresses the result once for them. What is not sparse enough goes
// densely.
Detached ExchangeOnGpus(Gpus& gpus, Gpu& rail, IntraPolicy& policy, const StepContext& context,
                        StepArgs args, std::function<void(StepResult)> ended);

}  // namespace spccl::runtime
