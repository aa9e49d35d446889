// What a collective takes on a system, dense and sparse. Pure.
//
// Hockney's model with the SpCCL paper's terms for kernels (sections II-A, IV-B) and growth of
// density (equation 7): docs/model.md has the equations.
#pragma once

#include <cstdint>

#include "bench/model/system.h"
#include "bench/perf/problem.h"
#include "collective/policy/settings.h"

namespace spccl::bench::model {

// kAllGather, kReduceScatter or kAllReduce. `bytes` as everywhere: of an all-gather the output, of
// a reduce-scatter the input, dense.
struct Work {
  Collective op = Collective::kAllReduce;
  double bytes = 0;
  uint32_t gpus = 4;
  double density = 1;  // of one GPU's input, at uniform positions, independent of the others'
  double width = 4;    // of an element, in bytes
};

// How frames are chosen. Thresholds are the paper's, or all kAutoThreshold: each send goes the way
// that takes it the least time, which takes no time to find out.
struct Sending {
  policy::Codec codec = policy::Codec::kPici;
  policy::Thresholds thresholds = policy::kAutoThresholds;
};
inline constexpr Sending kDenseSending{.codec = policy::Codec::kDense};

struct Projection {
  double seconds = 0;
  // What it is made of, each as if it were alone: links and kernels hide parts of one another.
  double link_seconds = 0, kernel_seconds = 0, round_seconds = 0;
  double wire_bytes = 0;   // out of a GPU, over all links
  double dense_bytes = 0;  // the same sends, had they been dense
  uint32_t rounds = 0;     // one after the other
  uint32_t sends = 0, sparse_sends = 0;

  // The largest of its parts: "links", "kernels" or "rounds".
  const char* dominant() const;
};

// Whether the model has the algorithm for so many GPUs: kRing always, kTwoLevelRing from two on
// that fill nodes, kHalvingDoubling and kRecursiveDoubling (of an all-reduce only) if also the
// nodes are a power of two.
bool CanProject(policy::Algorithm algorithm, const Work& work, const System& system);

// Requires CanProject().
Projection Project(policy::Algorithm algorithm, const System& system, const Work& work,
                   const Sending& sending);

// The fastest of the four, and which it is.
struct Best {
  policy::Algorithm algorithm = policy::Algorithm::kRing;
  Projection projection;
};
Best ProjectBest(const System& system, const Work& work, const Sending& sending);

}  // namespace spccl::bench::model
