// Inputs for the kernels' property tests, and buffers that notice writes past their ends.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/host/codec.h"
#include "tests/support/seed.h"

namespace spccl {

// A heap block of exactly `offset + size` bytes (so that AddressSanitizer sees any read past it)
// or, with `guard`, that many canary bytes more behind it; data() is `offset` bytes in.
class Buffer {
 public:
  explicit Buffer(size_t size, size_t offset = 0, size_t guard = 0)
      : size_(size), offset_(offset), guard_(guard), block_(new uint8_t[offset + size + guard]) {
    std::memset(block_.get(), kCanary, offset + size + guard);
  }
  uint8_t* data() { return block_.get() + offset_; }
  const uint8_t* data() const { return block_.get() + offset_; }
  size_t size() const { return size_; }
  std::vector<uint8_t> bytes() const { return {data(), data() + size_}; }

  // Whether nothing outside data()[0, size) was written.
  bool Intact() const {
    for (size_t i = 0; i < offset_; ++i) {
      if (block_[i] != kCanary) return false;
    }
    for (size_t i = offset_ + size_; i < offset_ + size_ + guard_; ++i) {
      if (block_[i] != kCanary) return false;
    }
    return true;
  }

 private:
  static constexpr uint8_t kCanary = 0xC5;
  size_t size_;
  size_t offset_;
  size_t guard_;
  std::unique_ptr<uint8_t[]> block_;
};

// The element counts at which something changes: words, vectors, tiles, and their ends.
inline const std::vector<uint64_t>& EdgeSizes() {
  static const std::vector<uint64_t> sizes = {0,  1,   31,  32,   33,   63,   64,
                                              65, 127, 257, 4095, 4096, 4097, 8255};
  return sizes;
}

// The bit patterns of a float dtype that are easily got wrong.
inline std::vector<uint64_t> SpecialBits(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {0x8000, 0x0000, 0x7C00, 0xFC00, 0x7E01, 0xFE55, 0x7C01, 0x0001, 0x83FF, 0x7BFF};
    case DType::kBfloat16:
      return {0x8000, 0x0000, 0x7F80, 0xFF80, 0x7FC1, 0xFFD5, 0x7F81, 0x0001, 0x807F, 0x7F7F};
    case DType::kFloat32:
      return {0x80000000, 0,          0x7F800000, 0xFF800000, 0x7FC00001,
              0xFFC12345, 0x7F800001, 0x00000001, 0x807FFFFF, 0x7F7FFFFF};
    case DType::kFloat64:
      return {0x8000000000000000, 0,
              0x7FF0000000000000, 0xFFF0000000000000,
              0x7FF8000000000001, 0xFFF8123412341234,
              0x7FF0000000000001, 0x0000000000000001,
              0x800FFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF};
    default:  // integers: the extremes and what a byte-wise test would take for zero
      return {0, 1, 0x80, 0x7F, 0xFF, 0x8000000000000000, ~uint64_t{0}, 0x80000000, 0x7FFFFFFF, 2};
  }
}

// How the nonzeros lie in an input.
enum class Pattern { kZeros, kFull, kHalf, kTenth, kHundredth, kSpecials, kRuns, kLastOnly };
inline constexpr Pattern kPatterns[] = {Pattern::kZeros, Pattern::kFull,      Pattern::kHalf,
                                        Pattern::kTenth, Pattern::kHundredth, Pattern::kSpecials,
                                        Pattern::kRuns,  Pattern::kLastOnly};

inline bool PatternHasElement(Pattern pattern, uint64_t i, uint64_t elements,
                              std::mt19937_64& rng) {
  switch (pattern) {
    case Pattern::kZeros:
      return false;
    case Pattern::kFull:
    case Pattern::kSpecials:
      return true;
    case Pattern::kHalf:
      return rng() % 2 == 0;
    case Pattern::kTenth:
      return rng() % 10 == 0;
    case Pattern::kHundredth:
      return rng() % 100 == 0;
    case Pattern::kRuns:  // full and empty words and vectors beside each other
      return (i / 48) % 3 == 1;
    case Pattern::kLastOnly:
      return i + 1 == elements;
  }
  return false;
}

// Any bits at all (so NaNs and infinities too); zeros of floats are often negative.
inline void FillElements(DType dtype, Pattern pattern, std::mt19937_64& rng, uint64_t elements,
                         uint8_t* dense) {
  const size_t size = SizeOf(dtype);
  const std::vector<uint64_t> specials = SpecialBits(dtype);
  const uint64_t sign = uint64_t{1} << (8 * size - 1);
  for (uint64_t i = 0; i < elements; ++i) {
    uint64_t bits = IsFloat(dtype) && rng() % 4 == 0 ? sign : 0;
    if (PatternHasElement(pattern, i, elements, rng)) {
      bits = pattern == Pattern::kSpecials ? specials[rng() % specials.size()] : rng();
    }
    std::memcpy(dense + i * size, &bits, size);
  }
}

inline std::vector<std::string_view> TestedTargets() {
  return {AvailableTargets().begin(), AvailableTargets().end()};
}

inline std::string TestName(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : c;
  return result;
}

}  // namespace spccl
