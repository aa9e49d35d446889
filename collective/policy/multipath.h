// Which share of a large dense all-reduce within a node goes over the host while the rest goes over
// the GPUs' links, so that both end together. Pure. docs/adr/0022-multipath.md
#pragma once

#include <cstdint>

namespace spccl::policy {

// What a buffer takes over one path: `seconds` for any bytes at all, and its bytes at `rate`. The
// rate is the whole operation's: bytes of the buffer, from inputs at every GPU to the result at
// every GPU, in a second.
struct Path {
  double seconds = 0;
  double rate = 0;  // above 0; 0: there is no such path
};

// A path's time for `bytes`; none for no bytes.
constexpr double SecondsOf(const Path& path, double bytes) {
  return bytes > 0 ? path.seconds + bytes / path.rate : 0;
}

// Over the GPUs' links: each of `gpus` takes its shard from all others and gives back the sum.
struct DeviceLinks {
  uint32_t gpus = 2;
  double link_rate = 0;    // bytes per second into a GPU from the others, all of them at work
  double reduce_rate = 0;  // bytes per second of a shard, all inputs' kernel together
  double seconds = 0;      // launches, events
};
Path DevicePath(const DeviceLinks& links);

// Over pinned memory: each GPU puts its input down, the host's threads combine the inputs, each GPU
// gets the sum. Slice by slice, and the three side by side.
struct HostLinks {
  double down_rate = 0;    // bytes per second out of each GPU, with all of them at work
  double up_rate = 0;      // and into each
  double reduce_rate = 0;  // bytes per second of the sum, all threads together
  double seconds = 0;      // launches, events, waking the threads
};
// Of slices of `slice_bytes`: the first one's way is part of the path's `seconds`.
Path HostPath(const HostLinks& links, uint64_t slice_bytes);

struct PathSplit {
  uint64_t host_bytes = 0;  // whole slices
  uint64_t device_bytes = 0;
  double seconds = 0;        // by the model, both side by side
  double alone_seconds = 0;  // over the device path only
};

// Less is not worth the host's cores and memory.
inline constexpr double kLeastPathGain = 0.05;

// Of `bytes`, in slices of `slice_bytes` (above 0): as many over the host as make the later path
// end earliest; none where even a perfect split would not gain kLeastPathGain. What is left over
// from whole slices goes over the device path. More bytes never mean fewer over the host. Requires
// a device path.
PathSplit SplitPaths(const Path& device, const Path& host, uint64_t bytes, uint64_t slice_bytes);

}  // namespace spccl::policy
