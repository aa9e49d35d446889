// What the suites of codecs and reductions run on: a codec as a class, so that the host's and the
// GPU kernels' pass the same tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/host/codec.h"
#include "kernels/redop.h"
#include "tests/kernels/host/elements.h"
#include "tests/support/thinning.h"

namespace spccl {

// Functions as in kernels/host/codec.h and dense.h.
class TestedCodec {
 public:
  virtual ~TestedCodec() = default;
  virtual Encoded Encode(Format format, DType dtype, const void* dense, uint64_t elements,
                         void* frame) = 0;
  virtual void Decode(const void* frame, void* dense, Stores stores) = 0;
  virtual void ReduceInto(const void* frame, void* accumulator, DType accumulator_dtype) = 0;
  virtual uint64_t CountNonzeros(DType dtype, const void* dense, uint64_t elements) = 0;
  virtual void Reduce(DType dtype, RedOp op, std::span<const void* const> inputs,
                      std::span<void* const> outputs, uint64_t elements, bool streaming) = 0;

  // What frames and elements must be aligned to.
  virtual size_t FrameAlignment() const { return 1; }
  virtual size_t ElementAlignment(DType) const { return 1; }
  // How many bytes of elements make a frame of many parts.
  virtual uint64_t LargeBytes() const { return kStreamingBytes; }
  // Every how many of the sizes, patterns and numbers of ranks to test; which ones is up to the
  // seed.
  virtual uint32_t Thinning() const { return kThinning; }

  // Random offsets for buffers, aligned as they must be.
  size_t FrameOffset(std::mt19937_64& rng) const {
    return rng() % 64 / FrameAlignment() * FrameAlignment();
  }
  size_t ElementOffset(DType dtype, std::mt19937_64& rng) const {
    return rng() % 64 / ElementAlignment(dtype) * ElementAlignment(dtype);
  }
  bool Skip(std::mt19937_64& rng) const { return Thinning() > 1 && rng() % Thinning() != 0; }
};

inline constexpr size_t kGuard = 256;

inline std::vector<DType> AllDTypes() {
  std::vector<DType> dtypes;
  for (int code = 0; code < kDTypeCount; ++code) dtypes.push_back(static_cast<DType>(code));
  return dtypes;
}

struct CodecUnderTest {
  std::string name;
  std::function<std::unique_ptr<TestedCodec>()> make;
};
inline void PrintTo(const CodecUnderTest& codec, std::ostream* out) {
  *out << codec.name;
}

}  // namespace spccl
