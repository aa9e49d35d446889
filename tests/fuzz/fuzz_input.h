// Reads a fuzzer's input as numbers; zeros once it is used up. In every build, unlike libFuzzer's
// FuzzedDataProvider, which comes with clang only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace spccl::fuzz {

class Input {
 public:
  Input(const uint8_t* bytes, size_t size) : bytes_(bytes), left_(size) {}

  bool empty() const { return left_ == 0; }

  void Read(void* out, size_t size) {
    const size_t got = std::min(size, left_);
    std::memset(out, 0, size);
    if (got > 0) std::memcpy(out, bytes_, got);
    bytes_ += got;
    left_ -= got;
  }

  template <typename T>
  T Number() {
    T value;
    Read(&value, sizeof value);
    return value;
  }
  // 0 to `most`.
  uint32_t UpTo(uint32_t most) { return Number<uint32_t>() % (most + 1); }
  // True one time in `n`.
  bool OneIn(uint8_t n) { return Number<uint8_t>() % n == 0; }

 private:
  const uint8_t* bytes_;
  size_t left_;
};

}  // namespace spccl::fuzz
