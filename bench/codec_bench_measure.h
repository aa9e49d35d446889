// What codec-bench measures.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/format.h"

namespace spccl::bench {

struct CodecOptions {
  uint64_t bytes = 64 << 20;  // of dense data
  DType dtype = DType::kFloat32;
  Format format = Format::kPici;
  double sparsity = 0.9;
  int threads = 1;
  int repeats = 25;
  uint64_t seed = 1;
};

// Best seconds of each; every repeat runs all four in turn. `*_ok`: the results were right.
struct CodecResult {
  double memcpy_s;
  double encode_s;
  double decode_s;
  double reduce_s;
  double validate_s;
  uint64_t frame_bytes;
  uint64_t nnz;
  bool decoded_right;
};
CodecResult MeasureCodec(const CodecOptions& options);

struct StreamOptions {
  uint64_t bytes = 64 << 20;  // of one rank's buffer
  int ranks = 2;
  int threads = 2;
  int repeats = 25;
};

// Seconds that the threads take to read every rank's input and to write every rank's output with
// non-temporal stores: what no reduction of these buffers can beat.
struct StreamResult {
  double best_s;
  double median_s;
};
StreamResult MeasureStream(const StreamOptions& options);

}  // namespace spccl::bench
