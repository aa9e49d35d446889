// What a participant keeps of one lane between its steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "collective/transport/frame_pool.h"

namespace spccl::runtime {

enum class HeldKind : uint8_t {
  kInput,    // a dense frame: the input, where it cannot be read in place again
  kPartial,  // a dense frame of partial sums
  kFinal,    // final values as they travel, in any format
  kOutputs,  // no frame: the outputs hold the input or the partial, to be reduced into
};

// Few: by kind and chunk, at most one each. Not thread-safe.
class HeldFrames {
 public:
  transport::Frame* Find(HeldKind kind, uint32_t chunk) {
    const auto found = Entry(kind, chunk);
    return found == held_.end() ? nullptr : &found->frame;
  }
  void Put(HeldKind kind, uint32_t chunk, transport::Frame frame) {
    const auto found = Entry(kind, chunk);
    if (found == held_.end()) {
      held_.push_back({kind, chunk, std::move(frame)});
    } else {
      found->frame = std::move(frame);
    }
  }
  void Drop(HeldKind kind, uint32_t chunk) {
    const auto found = Entry(kind, chunk);
    if (found == held_.end()) return;
    std::swap(*found, held_.back());
    held_.pop_back();
  }
  void Clear() { held_.clear(); }

 private:
  struct Held {
    HeldKind kind;
    uint32_t chunk;
    transport::Frame frame;
  };
  using Vector = absl::InlinedVector<Held, 1>;
  Vector::iterator Entry(HeldKind kind, uint32_t chunk) {
    return std::find_if(held_.begin(), held_.end(),
                        [&](const Held& held) { return held.kind == kind && held.chunk == chunk; });
  }

  Vector held_;
};

}  // namespace spccl::runtime
