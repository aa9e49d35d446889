// How a buffer is cut into one chunk per participant.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spccl::plan {

struct Range {
  uint64_t first = 0;     // in elements
  uint64_t elements = 0;  // may be 0
  bool operator==(const Range&) const = default;
};

// Chunk boundaries lie on multiples of this many elements, so that chunks of an aligned buffer are
// aligned to a cache line for every dtype of 4 bytes and more.
inline constexpr uint64_t kChunkGranule = 16;

// Chunk `chunk` of `chunks` over `count` elements: the chunks cover the buffer in order without gap
// or overlap, and differ by at most one granule (the buffer's last, partial granule counts whole).
constexpr Range ChunkOf(uint64_t count, uint32_t chunks, uint32_t chunk) {
  const uint64_t granules = (count + kChunkGranule - 1) / kChunkGranule;
  const auto start = [&](uint64_t c) {
    const uint64_t each = granules / chunks;
    const uint64_t longer = granules % chunks;  // the first `longer` chunks have one more
    return std::min(count, (each * c + std::min(c, longer)) * kChunkGranule);
  };
  return {start(chunk), start(uint64_t{chunk} + 1) - start(chunk)};
}

}  // namespace spccl::plan
