// What codec-bench measures.
#pragma once

#include <cstdint>

#include "bench/codec_bench_buffers.h"
#include "kernels/dtype.h"
#include "kernels/format.h"

namespace spccl::bench {

struct CodecOptions {
  uint64_t bytes = 64 << 20;  // of dense data
  DType dtype = DType::kFloat32;
  Format format = Format::kPici;
  double sparsity = 0.9;
  double bound = 1e-3;  // errorbound: absolute, of a smooth field up to 1 with noise of 0.01
  int threads = 1;
  int repeats = 25;
  uint64_t seed = 1;
  Pages pages = Pages::kHuge;
};

// Best seconds of each; every repeat runs all of them in turn. `read_s`: reading the dense data
// once, which no encoder can beat.
struct CodecResult {
  double memcpy_s;
  double read_s;
  double encode_s;
  double decode_s;
  double reduce_s;
  double validate_s;
  uint64_t frame_bytes;
  uint64_t nnz;
  uint64_t huge_bytes;  // of the process's memory on huge pages while it measured
  bool decoded_right;
};
CodecResult MeasureCodec(const CodecOptions& options);

struct StreamOptions {
  uint64_t bytes = 64 << 20;  // of one rank's buffer
  int ranks = 2;
  int threads = 2;
  int repeats = 25;
  Pages pages = Pages::kHuge;
};

// Seconds that the threads take to read every rank's input and to write every rank's output with
// non-temporal stores: what no reduction of these buffers can beat.
struct StreamResult {
  double best_s;
  double median_s;
  uint64_t huge_bytes;
};
StreamResult MeasureStream(const StreamOptions& options);

}  // namespace spccl::bench
