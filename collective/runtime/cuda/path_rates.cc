#include "collective/runtime/cuda/path_rates.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "collective/policy/multipath.h"

namespace spccl::runtime {
namespace {

// More than communicators of a node have at a time; then the kind goes that was idle for longest.
constexpr size_t kMostKinds = 4096;

// A first try: enough slices to say how fast they follow each other. A later one, where the host
// was slow: as few as say that it is no longer.
constexpr uint64_t kTrialSlices = 4;
constexpr uint64_t kMostTrialSlices = 16;
constexpr uint64_t kTrialShare = 8;

// Memory for the host's part that grows with each try is there by then.
constexpr uint32_t kMostWarmed = 4;

// The weight of what is newest: of the first ones, as many as there are.
constexpr uint32_t kMemory = 4;

}  // namespace

// Of times, not of rates: one operation that took long then weighs as much as it took.
void PathRates::Rate::Add(uint64_t bytes, int64_t ns) {
  if (bytes == 0 || ns <= 0) return;
  count = std::min(count + 1, kMemory);
  ns_per_byte += (static_cast<double>(ns) / static_cast<double>(bytes) - ns_per_byte) / count;
}

// As far as whole slices can be: else a better split than this one may gain.
bool PathRates::Known::Balanced(const Times& times) const {
  const int64_t slice_ns = times.host_ns / static_cast<int64_t>(times.host_bytes / slice_bytes + 1);
  const int64_t least_ns = std::min(times.device_ns, times.host_ns);
  return std::max(times.device_ns, times.host_ns) - least_ns <= std::max(slice_ns, least_ns / 5);
}

uint64_t PathRates::HostBytes(Kind kind, uint64_t slice_bytes, bool dense) {
  const uint64_t bytes = kind.bytes;
  if (!Covers(bytes) || bytes == 0) return 0;
  kind.bytes = std::bit_floor(bytes);
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(kind);
  Known* const known = found == known_.end() ? nullptr : &found->second;
  const uint32_t in_a_row = known == nullptr ? 0 : known->dense_in_a_row;
  if (!dense && in_a_row < options_.dense_in_a_row) return 0;
  uint64_t host_bytes = 0;
  if (options_.share) {
    const double slices =
        *options_.share * static_cast<double>(bytes) / static_cast<double>(slice_bytes);
    host_bytes = static_cast<uint64_t>(slices) * slice_bytes;
  } else if (known != nullptr && known->alone.count > 0) {
    host_bytes = Measured(known, bytes, slice_bytes);
  }
  // Something is left for the GPUs.
  return std::min(host_bytes, (bytes - 1) / slice_bytes * slice_bytes);
}

uint64_t PathRates::Measured(Known* known, uint64_t bytes, uint64_t slice_bytes) {
  uint64_t host_bytes = 0;
  known->tries = false;
  known->slice_bytes = slice_bytes;
  // Where both paths share a bottleneck, each has a rate and both together gain nothing.
  const bool gains =
      known->split.count < kJudgedBy ||
      known->split.bytes_per_second() >= kLeastGain * known->alone.bytes_per_second();
  if (known->host.count > 0 && gains) {
    host_bytes = policy::SplitPaths({.rate = known->device.bytes_per_second()},
                                    {.rate = known->host.bytes_per_second()}, bytes, slice_bytes)
                     .host_bytes;
  }
  if (host_bytes > 0) {
    known->since_host = 0;
    if (++known->since_alone < kTryEvery) return host_bytes;
    known->since_alone = 0;
    return 0;
  }
  if (known->since_host < kTryEvery) {
    ++known->since_host;
    return 0;
  }
  known->since_host = 0;
  known->tries = true;
  known->split = {};  // if it is to be split again, that is judged anew
  const uint64_t most = known->host.count > 0 ? kTrialSlices : kMostTrialSlices;
  return std::clamp(bytes / kTrialShare / slice_bytes, kTrialSlices, most) * slice_bytes;
}

PathRates::Known& PathRates::KnownOf(Kind kind) {
  if (known_.size() >= kMostKinds && !known_.contains(kind)) {
    known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  Known& known = known_[std::move(kind)];
  known.used = ++noted_;
  return known;
}

void PathRates::Note(Kind kind, const Times& times) {
  kind.bytes = std::bit_floor(kind.bytes);
  const std::lock_guard lock(mutex_);
  Known& known = KnownOf(std::move(kind));
  known.dense_in_a_row = times.dense ? known.dense_in_a_row + 1 : 0;
  // Compressed, the links are as fast as their data is sparse.
  if (!times.dense) return;
  if (times.host_bytes == 0) return known.alone.Add(times.device_bytes, times.device_ns);
  if (times.warms) {
    if (++known.warmed <= kMostWarmed) known.since_host = kTryEvery;  // at once again
    return;
  }
  known.warmed = 0;
  known.device.Add(times.device_bytes, times.device_ns);
  known.host.Add(times.host_bytes, times.host_ns);
  if (known.tries || !known.Balanced(times)) return;
  known.split.Add(times.device_bytes + times.host_bytes, std::max(times.device_ns, times.host_ns));
}

}  // namespace spccl::runtime
