// A communicator's data path to other nodes: frames of the host's over UCX, those of GPUs over NCCL
// where its nodes have a world.
#pragma once

#include <memory>

#include "collective/transport/ucx/communicator.h"
#include "daemon/gpu_worlds.h"
#include "daemon/nodes.h"

namespace spccl::daemon {

// `gpus`: null without a world.
std::unique_ptr<NodeChannel> MakeNodeChannel(
    std::unique_ptr<transport::ucx::Communicator> communicator, std::unique_ptr<GpuChannel> gpus);

}  // namespace spccl::daemon
