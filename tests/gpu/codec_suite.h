// The parts of the codec suite on a GPU; each compares the kernels with the host's codecs.
#pragma once

#include <random>

#include "kernels/host/codec.h"
#include "tests/gpu/device_array.h"

namespace spccl::gpu_test {

struct SuiteOptions {
  uint32_t thinning = 1;           // one case in so many, drawn by the seed
  uint64_t large_bytes = 1 << 28;  // of elements, of the largest frames; 0: none
};

// What the host makes of elements.
inline Bytes HostFrame(Format format, DType dtype, const Bytes& dense, uint64_t elements) {
  Bytes frame(MaxFrameBytes(format, dtype, elements) + kEncodeSlack);
  frame.resize(Encode(format, dtype, dense.data(), elements, frame.data()).frame_bytes);
  return frame;
}

// codec_suite_sparse.cc: every format and dtype, frame by frame.
void TestFrames(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng);
void TestFused(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng);
// codec_suite_large.cc: frames of many tiles, scratch that is used again, captured launches.
void TestLarge(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng);
void TestReplay(Suite& suite, std::mt19937_64& rng);
// codec_suite_dense.cc: reductions in one pass and in steps, copies.
void TestDense(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng);

}  // namespace spccl::gpu_test
