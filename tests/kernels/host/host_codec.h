// The host's codecs, on one target, for the suites.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/host/dense.h"
#include "tests/kernels/tested_codec.h"

namespace spccl {

class HostCodec final : public TestedCodec {
 public:
  explicit HostCodec(std::string_view target) { EXPECT_TRUE(ForceTarget(target)); }
  ~HostCodec() override { ForceTarget(""); }

  Encoded Encode(Format format, DType dtype, const void* dense, uint64_t elements,
                 void* frame) override {
    return spccl::Encode(format, dtype, dense, elements, frame);
  }
  void Decode(const void* frame, void* dense, Stores stores) override {
    spccl::Decode(frame, dense, stores);
  }
  void ReduceInto(const void* frame, void* accumulator, DType accumulator_dtype) override {
    spccl::ReduceInto(frame, accumulator, accumulator_dtype);
  }
  uint64_t CountNonzeros(DType dtype, const void* dense, uint64_t elements) override {
    return spccl::CountNonzeros(dtype, dense, elements);
  }
  void Reduce(DType dtype, RedOp op, std::span<const void* const> inputs,
              std::span<void* const> outputs, uint64_t elements, bool streaming) override {
    spccl::Reduce(dtype, op, inputs, outputs, elements, streaming);
  }
};

inline std::vector<CodecUnderTest> HostCodecs() {
  std::vector<CodecUnderTest> codecs;
  for (const std::string_view target : TestedTargets()) {
    codecs.push_back({TestName(target), [target] { return std::make_unique<HostCodec>(target); }});
  }
  return codecs;
}

}  // namespace spccl
