#include "collective/policy/multipath.h"

#include <algorithm>

namespace spccl::policy {
namespace {

// The later path's end if `slices` go over the host.
double SecondsWith(const Path& device, const Path& host, uint64_t bytes, uint64_t slice_bytes,
                   uint64_t slices) {
  const uint64_t over_host = slices * slice_bytes;
  return std::max(SecondsOf(device, static_cast<double>(bytes - over_host)),
                  SecondsOf(host, static_cast<double>(over_host)));
}

// Whether a split at any byte, so that both paths end at once, gains enough. Of sizes that does the
// largest of all, so that sizes just above that of a first slice do not go back and forth.
bool Pays(const Path& device, const Path& host, double bytes) {
  if (host.rate <= 0 || bytes <= 0) return false;
  const double together =
      (device.seconds * device.rate + host.seconds * host.rate + bytes) / (device.rate + host.rate);
  return together <= (1 - kLeastPathGain) * SecondsOf(device, bytes);
}

}  // namespace

Path DevicePath(const DeviceLinks& links) {
  if (links.gpus < 2 || links.link_rate <= 0 || links.reduce_rate <= 0) return {};
  // (n - 1) / n of the buffer comes in twice: inputs, then sums; 1 / n is reduced meanwhile.
  const double gpus = links.gpus;
  const double link = 2 * (gpus - 1) / gpus / links.link_rate;
  const double reduce = 1 / gpus / links.reduce_rate;
  return {.seconds = links.seconds, .rate = 1 / std::max(link, reduce)};
}

Path HostPath(const HostLinks& links, uint64_t slice_bytes) {
  if (links.down_rate <= 0 || links.up_rate <= 0 || links.reduce_rate <= 0) return {};
  const double slowest = std::min({links.down_rate, links.up_rate, links.reduce_rate});
  // The first slice passes all three, and each one after it follows at the slowest one's pace.
  const double through = 1 / links.down_rate + 1 / links.reduce_rate + 1 / links.up_rate;
  const double fill = static_cast<double>(slice_bytes) * (through - 1 / slowest);
  return {.seconds = links.seconds + fill, .rate = slowest};
}

PathSplit SplitPaths(const Path& device, const Path& host, uint64_t bytes, uint64_t slice_bytes) {
  const double alone = SecondsOf(device, static_cast<double>(bytes));
  PathSplit split{.device_bytes = bytes, .seconds = alone, .alone_seconds = alone};
  if (!Pays(device, host, static_cast<double>(bytes))) return split;
  // The fewest slices with which the host ends last: these, or one less.
  uint64_t low = 0, high = bytes / slice_bytes;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const uint64_t over_host = middle * slice_bytes;
    const bool host_last = SecondsOf(host, static_cast<double>(over_host)) >=
                           SecondsOf(device, static_cast<double>(bytes - over_host));
    if (host_last) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  for (const uint64_t slices : {low > 0 ? low - 1 : 0, low}) {
    const double seconds = SecondsWith(device, host, bytes, slice_bytes, slices);
    if (seconds >= split.seconds) continue;
    split.host_bytes = slices * slice_bytes;
    split.device_bytes = bytes - split.host_bytes;
    split.seconds = seconds;
  }
  return split;
}

}  // namespace spccl::policy
