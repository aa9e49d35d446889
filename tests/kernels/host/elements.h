// Inputs for the kernels' property tests, and buffers that notice writes past their ends.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/host/codec.h"
#include "tests/support/seed.h"

namespace spccl {

// A heap block of exactly `offset + size` bytes (so that AddressSanitizer sees any read past it)
// or, with `guard`, that many canary bytes more behind it; data() is `offset` bytes behind the
// begin of a cache line.
class Buffer {
 public:
  explicit Buffer(size_t size, size_t offset = 0, size_t guard = 0)
      : size_(size),
        offset_(offset),
        guard_(guard),
        block_(new (kLine) uint8_t[offset + size + guard]) {
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
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(uint8_t* block) const { ::operator delete[](block, kLine); }
  };
  size_t size_;
  size_t offset_;
  size_t guard_;
  std::unique_ptr<uint8_t[], Free> block_;
};

// The element counts at which something changes: words, vectors, tiles, and their ends.
inline const std::vector<uint64_t>& EdgeSizes() {
  static const std::vector<uint64_t> sizes = {0,  1,   31,  32,   33,   63,   64,
                                              65, 127, 257, 4095, 4096, 4097, 8255};
  return sizes;
}

// How the nonzeros lie in an input.
enum class Pattern { kZeros, kFull, kHalf, kTenth, kHundredth, kSpecials, kRuns, kLastOnly };
inline constexpr Pattern kPatterns[] = {Pattern::kZeros, Pattern::kFull,      Pattern::kHalf,
                                        Pattern::kTenth, Pattern::kHundredth, Pattern::kSpecials,
                                        Pattern::kRuns,  Pattern::kLastOnly};

// Any bits at all (so NaNs and infinities too); zeros of floats are often negative.
void FillElements(DType dtype, Pattern pattern, std::mt19937_64& rng, uint64_t elements,
                  uint8_t* dense);

inline std::vector<std::string_view> TestedTargets() {
  return {AvailableTargets().begin(), AvailableTargets().end()};
}

inline std::string TestName(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : c;
  return result;
}

}  // namespace spccl
