// What a job of the soak does, step by step. Every process of the job draws the same steps from the
// same seed, so that nothing has to be agreed between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "bench/perf/problem.h"

namespace spccl::bench {

// The same draws from the same seed on every machine (the standard's distributions are not).
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Draw() { return random_(); }
  uint64_t Below(uint64_t limit) { return random_() % limit; }  // limit > 0
  bool Percent(uint64_t share) { return Below(100) < share; }
  template <typename T>
  T Of(std::span<const T> all) {
    return all[Below(all.size())];
  }

 private:
  std::mt19937_64 random_;
};

// One collective on one communicator.
struct SoakCall {
  size_t comm = 0;  // its place, below kMostComms
  Problem problem{};
  bool in_place = false;
  uint64_t seed = 0;  // of the Pattern
  double sparsity = 0;
  bool clustered = false;

  // Whether `rank`'s send buffer is looked at.
  bool Sends(uint32_t rank) const;
};

enum class StepKind : uint8_t {
  kEach,     // one call after the other
  kGroup,    // all in one group
  kStreams,  // on two streams in turn, then all awaited
  kJoin,     // a communicator is made of `members`
  kLeave,    // and destroyed
  kCodec,    // its sends are set to `codec`
};

struct SoakStep {
  StepKind kind = StepKind::kEach;
  std::vector<SoakCall> calls{};
  size_t comm = 0;                  // kJoin, kLeave, kCodec
  std::vector<uint32_t> members{};  // ranks of the job, in the order of the communicator's
  int codec = 0;                    // an exact one of spcclCodec_t
};

class SoakScript {
 public:
  static constexpr size_t kMostComms = 4;
  // The exact codecs are the first of spcclCodec_t; process.cc holds this to be so.
  static constexpr int kExactCodecs = 6;

  // `max_bytes`: the most of one call's buffers, about.
  SoakScript(uint64_t seed, uint32_t ranks, uint64_t max_bytes);

  SoakStep Next();

  // Of the communicator at this place after the last step; empty: there is none. The one at place 0
  // is of all ranks of the job, in order, and is there from the start to the end.
  const std::vector<uint32_t>& members(size_t comm) const { return comms_[comm]; }

 private:
  SoakStep Calls(StepKind kind, uint64_t most);
  SoakCall Call(uint64_t max_bytes);
  SoakStep Join(size_t comm);
  size_t AnyComm(size_t from);  // kMostComms: there is none

  Dice dice_;
  const uint32_t ranks_;
  const uint64_t max_bytes_;
  std::array<std::vector<uint32_t>, kMostComms> comms_;
};

}  // namespace spccl::bench
