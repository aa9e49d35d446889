// Numbers of participants that are no power of two, for algorithms that want one.
#pragma once

#include <bit>
#include <cstdint>

#include "collective/plan/plan.h"

namespace spccl::plan {

// The largest power of two of the participants are cores. Each of the others, the extras, belongs
// to a core that stands before it: extras are participants 1, 3, 5, ..., as many as there are.
class Cores {
 public:
  explicit Cores(uint32_t participants)
      : count_(std::bit_floor(participants)), extras_(participants - count_) {}

  uint32_t count() const { return count_; }
  uint32_t rounds() const { return static_cast<uint32_t>(std::countr_zero(count_)); }

  uint32_t ParticipantOf(uint32_t core) const { return core < extras_ ? 2 * core : core + extras_; }
  // The extra of a core; kNobody if it has none.
  uint32_t ExtraOf(uint32_t core) const { return core < extras_ ? 2 * core + 1 : kNobody; }

 private:
  uint32_t count_, extras_;
};

}  // namespace spccl::plan
