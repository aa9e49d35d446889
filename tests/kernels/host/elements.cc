#include "tests/kernels/host/elements.h"

#include "tests/support/trusted_random.h"

namespace spccl {
namespace {

// The bit patterns of a float dtype that are easily got wrong.
std::vector<uint64_t> SpecialBits(DType dtype) {
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

bool PatternHasElement(Pattern pattern, uint64_t i, uint64_t elements,
                       testing::TrustedRandom& random) {
  switch (pattern) {
    case Pattern::kZeros:
      return false;
    case Pattern::kFull:
    case Pattern::kSpecials:
      return true;
    case Pattern::kHalf:
      return random() % 2 == 0;
    case Pattern::kTenth:
      return random() % 10 == 0;
    case Pattern::kHundredth:
      return random() % 100 == 0;
    case Pattern::kRuns:  // full and empty words and vectors beside each other
      return (i / 48) % 3 == 1;
    case Pattern::kLastOnly:
      return i + 1 == elements;
  }
  return false;
}

}  // namespace

void FillElements(DType dtype, Pattern pattern, std::mt19937_64& rng, uint64_t elements,
                  uint8_t* dense) {
  testing::TrustedRandom random(rng);
  const size_t size = SizeOf(dtype);
  const std::vector<uint64_t> specials = SpecialBits(dtype);
  const uint64_t sign = uint64_t{1} << (8 * size - 1);
  for (uint64_t i = 0; i < elements; ++i) {
    uint64_t bits = IsFloat(dtype) && random() % 4 == 0 ? sign : 0;
    if (PatternHasElement(pattern, i, elements, random)) {
      bits = pattern == Pattern::kSpecials ? specials[random() % specials.size()] : random();
    }
    std::memcpy(dense + i * size, &bits, size);
  }
}

}  // namespace spccl
