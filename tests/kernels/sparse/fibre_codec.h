// The GPU kernels on the fibre lane, for the suites. Frames lie where the tests put them.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/simt/fibre_launcher.h"
#include "kernels/sparse/device_codec.h"
#include "tests/kernels/tested_codec.h"

namespace spccl {

// Sanitizers make a lane's switch ten times as slow: what is drawn of the suite is less.
#if defined(__SANITIZE_THREAD__)
inline constexpr uint32_t kFibreThinning = 24;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr uint32_t kFibreThinning = 8;
#else
inline constexpr uint32_t kFibreThinning = 3;
#endif

inline sparse::FrameInfo InfoOf(const void* frame) {
  FrameHeader header;
  std::memcpy(&header, frame, sizeof(header));
  return {static_cast<Format>(header.format), static_cast<DType>(header.dtype),
          header.element_count, header.nnz};
}

// Zeroed memory on a multiple of 16, of exactly `bytes` bytes.
class DeviceMemory {
 public:
  explicit DeviceMemory(uint64_t bytes) : bytes_(new uint8_t[bytes]()) {}
  void* get() { return bytes_.get(); }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
};

// Making a machine's fibres costs more than most tests do with them: all tests share them.
inline simt::FibreMachine& SharedMachine(uint64_t seed) {
  static simt::FibreMachine machine({.seed = seed});
  machine.Reseed(seed);
  return machine;
}

class FibreCodec final : public TestedCodec {
 public:
  explicit FibreCodec(uint64_t seed) : rng_(seed), launcher_(SharedMachine(seed)) {}

  Encoded Encode(Format format, DType dtype, const void* dense, uint64_t elements,
                 void* frame) override {
    DeviceMemory scratch(sparse::ScratchBytes(format, dtype, elements));
    sparse::Encode(launcher_, format, dtype, dense, elements, frame, scratch.get());
    Check();
    const uint64_t nnz = InfoOf(frame).nnz;
    return {FrameBytes(format, dtype, elements, nnz), nnz};
  }
  void Decode(const void* frame, void* dense, Stores) override {
    sparse::Decode(launcher_, InfoOf(frame), frame, dense);
    Check();
  }
  // Either form, whatever the density: they differ in nothing but speed.
  void ReduceInto(const void* frame, void* accumulator, DType accumulator_dtype) override {
    const auto form = rng_() % 2 == 0 ? sparse::ReduceForm::kFew : sparse::ReduceForm::kMany;
    sparse::ReduceInto(launcher_, InfoOf(frame), frame, accumulator, accumulator_dtype, form);
    Check();
  }
  uint64_t CountNonzeros(DType dtype, const void* dense, uint64_t elements) override {
    uint64_t count = 0;
    sparse::Count(launcher_, dtype, dense, elements, &count);
    Check();
    return count;
  }
  void Reduce(DType dtype, RedOp op, std::span<const void* const> inputs,
              std::span<void* const> outputs, uint64_t elements, bool) override {
    sparse::Reduce(launcher_, dtype, op, inputs, outputs, elements);
    Check();
  }

  size_t FrameAlignment() const override { return 16; }
  size_t ElementAlignment(DType dtype) const override { return SizeOf(dtype); }
  uint64_t LargeBytes() const override { return (192 << 10) / kFibreThinning; }
  uint32_t Thinning() const override { return kFibreThinning; }
  simt::FibreLauncher& launcher() { return launcher_; }

 private:
  void Check() { ASSERT_TRUE(launcher_.status().ok()) << launcher_.status(); }

  std::mt19937_64 rng_;
  simt::FibreLauncher launcher_;
};

inline std::vector<CodecUnderTest> FibreCodecs() {
  return {{"fibre", [] { return std::make_unique<FibreCodec>(TestSeed()); }}};
}

}  // namespace spccl
