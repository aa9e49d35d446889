// Digests of a few numbers, of which nobody has to fear a collision that somebody has made.
#pragma once

#include <cstdint>

namespace spccl {

// `value` taken into `digest`. Of splitmix64 (Steele et al., 2014).
constexpr uint64_t Mix(uint64_t digest, uint64_t value) {
  uint64_t z = digest + 0x9E3779B97F4A7C15U + value;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27) * 0x94D049BB133111EBU;
  return z ^ z >> 31;
}

}  // namespace spccl
