// The seed of a test program's random inputs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace spccl {

// Printed once; SPCCL_TEST_SEED repeats a run.
inline uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("SPCCL_TEST_SEED");
    const uint64_t value = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::cout << "seed: " << value << " (SPCCL_TEST_SEED repeats it)\n";
    return value;
  }();
  return seed;
}

}  // namespace spccl
