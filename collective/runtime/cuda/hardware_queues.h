// Who has how many of the queues of a GPU's hardware.
//
// A driver maps streams onto them, and a stream that waits, for a rank or for other nodes, holds up
// the others of its queue, among which may be what it waits for. So no two share one.
#pragma once

#include <cstddef>

namespace spccl::runtime {

// The most that a process can have of one GPU: spccld sets CUDA_DEVICE_MAX_CONNECTIONS to it.
inline constexpr size_t kHardwareQueues = 32;

// Kernels of this many lanes may run side by side; one of a slice fills a GPU by itself.
inline constexpr size_t kWorkStreams = 8;
// By Gpu::Way.
inline constexpr size_t kCopyStreams = 2;
// Worlds of NCCL's that run at a time. Each has a stream by Gpu::MakeStream, and two of NCCL's own,
// one of which waits for the end of each kernel; one more is NCCL's for all of them.
inline constexpr size_t kRunningWorlds = 4;
inline constexpr size_t kOwnStreamsOfNccl = 2 * kRunningWorlds + 1;
// Those that wait for ranks have what is left. What is more than that is asked for, again and
// again.
inline constexpr size_t kWaitStreams =
    kHardwareQueues - kWorkStreams - kCopyStreams - kRunningWorlds - kOwnStreamsOfNccl;

}  // namespace spccl::runtime
