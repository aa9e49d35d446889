#include "collective/runtime/cuda/path_rates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "collective/policy/multipath.h"

namespace spccl::runtime {
namespace {

// Sets of GPUs, and sizes, that are told apart: more than a node has. What comes then goes over the
// GPUs alone.
constexpr size_t kMostKinds = 4096;

// Enough slices for a trial to say how fast they follow each other, and no more than would be late
// over a path of a fifth of the links' rate.
constexpr uint64_t kTrialSlices = 4;
constexpr uint64_t kTrialShare = 8;

// The weight of what is newest: of the first ones, as many as there are.
constexpr uint32_t kMemory = 4;

}  // namespace

void PathRates::Rate::Add(uint64_t bytes, int64_t ns) {
  if (bytes == 0 || ns <= 0) return;
  const double rate = static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
  count = std::min(count + 1, kMemory);
  bytes_per_second += (rate - bytes_per_second) / count;
}

uint64_t PathRates::HostBytes(Kind kind, uint64_t slice_bytes, bool dense) {
  const uint64_t bytes = kind.bytes;
  if (!Covers(bytes)) return 0;
  // Something is left for the GPUs.
  const uint64_t most = bytes == 0 ? 0 : (bytes - 1) / slice_bytes;
  if (share_) {
    const double slices = *share_ * static_cast<double>(bytes) / static_cast<double>(slice_bytes);
    const auto whole = static_cast<uint64_t>(std::lround(slices));
    return std::min(std::max<uint64_t>(whole, 1), most) * slice_bytes;
  }
  kind.bytes = std::bit_floor(bytes);
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(kind);
  if (found == known_.end()) return 0;
  Known& known = found->second;
  if (known.device.count == 0 || !(dense || known.dense)) return 0;
  uint64_t host_bytes = 0;
  if (known.host.count > 0) {
    host_bytes = policy::SplitPaths({.rate = known.device.bytes_per_second},
                                    {.rate = known.host.bytes_per_second}, bytes, slice_bytes)
                     .host_bytes;
  }
  if (host_bytes == 0 && known.since_host >= kTryEvery) {
    host_bytes = std::max(kTrialSlices, bytes / kTrialShare / slice_bytes) * slice_bytes;
  }
  known.since_host = host_bytes == 0 ? known.since_host + 1 : 0;
  return std::min(host_bytes, most * slice_bytes);
}

void PathRates::Note(Kind kind, const Times& times) {
  if (share_) return;
  kind.bytes = std::bit_floor(kind.bytes);
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMostKinds && !known_.contains(kind)) return;
  Known& known = known_[std::move(kind)];
  known.dense = times.dense;
  // Compressed, the links are as fast as their data is sparse.
  if (times.dense) known.device.Add(times.device_bytes, times.device_ns);
  known.host.Add(times.host_bytes, times.host_ns);
}

}  // namespace spccl::runtime
