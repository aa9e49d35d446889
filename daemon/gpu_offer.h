// How the nodes of a communicator find out whether its frames go from GPU to GPU, and through which
// world (collective/transport/nccl): each says what it has as it joins, the root decides.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {

// What a node has, as it says itself.
struct GpuOffer {
  uint32_t gpus = 0;        // that its daemon uses; 0: frames go through its host's memory
  int library_version = 0;  // NCCL's
  bool is_ncclx = false;
  std::string why_none = {};  // without GPUs, for people; empty: it says nothing of them
  // Of worlds that it is in, or was: by set, the lowest generation that it can be in from now on.
  // Of those that are not here it can be in the first.
  std::map<uint64_t, uint64_t> generations = {};
};

// No node has had so many.
inline constexpr uint64_t kLastGeneration = uint64_t{1} << 40;
absl::Status CheckGeneration(uint64_t generation);

v1::GpuOffer ToMessage(const GpuOffer& offer);
// InvalidArgument names what no node has.
absl::StatusOr<GpuOffer> FromMessage(const v1::GpuOffer& message);

inline constexpr uint32_t kMostGpusOfNode = 1024;

// A daemon in a world.
struct GpuSeat {
  uint64_t boot_id = 0;
  uint32_t gpus = 0;
};

// Names a set of daemons with all their GPUs; their order does not matter.
uint64_t SetOf(std::vector<GpuSeat> seats);

struct GpuOffering {
  std::string name;  // of the node, for people
  uint64_t boot_id = 0;
  GpuOffer offer;
};
// The generation of the world that all can be in. FailedPrecondition: their frames go through the
// hosts, and why.
absl::StatusOr<uint64_t> AgreeOnWorld(const std::vector<GpuOffering>& nodes);

}  // namespace spccl::daemon
