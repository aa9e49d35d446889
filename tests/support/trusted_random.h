// Random bits for libraries that are TRUSTED (cmake/SpcclTargets.cmake). Not the standard
// library's: what a test's file has of that, with its sanitizer, may be linked for theirs.
#pragma once

#include <cstdint>
#include <random>

namespace spccl::testing {

// SplitMix64, of Steele, Lea and Flood.
class TrustedRandom {
 public:
  explicit TrustedRandom(std::mt19937_64& seeds) : state_(seeds()) {}
  uint64_t operator()() {
    uint64_t mixed = state_ += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return mixed ^ (mixed >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace spccl::testing
