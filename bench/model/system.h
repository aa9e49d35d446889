// The machine that a projection is for, and what is known of the papers' ones. Pure data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/model/kernel_rates.h"

namespace spccl::bench::model {

// Rates in bytes per second, times in seconds.
struct System {
  uint32_t gpus_per_node = 4;
  double intra_rate = 300e9;  // out of a GPU to the others of its node, and into it
  double node_rate = 100e9;   // out of a node, and into it, all adapters together
  double intra_alpha = 0;     // a round within the node, whatever its bytes
  double inter_alpha = 0;     // a round between nodes
  double sparse_alpha = 0;    // what a round with frames takes beside
  KernelRates kernels;
  // Of the lesser of the links' and the sparse kernels' time: the share that is hidden by the
  // other. 0 is the paper's equation 6. Dense kernels are hidden wholly, as NCCL's are.
  double overlap = 1;
  // A reduce-scatter's frame is added and the sum encoded by one kernel.
  bool fused = false;
};

// Where a number comes from. Nothing here was measured by us.
struct Source {
  std::string name;   // the flag that sets it: "node-rate"
  std::string value;  // as people read it
  std::string kind;   // stated, derived, fitted, target or assumed
  std::string where;
};

struct Preset {
  std::string name;
  System system = {};
  std::vector<Source> sources = {};
};
const std::vector<Preset>& Presets();
const Preset* FindPreset(std::string_view name);

}  // namespace spccl::bench::model
