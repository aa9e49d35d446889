#include "bench/codec_bench_measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "bench/codec_bench_buffers.h"
#include "kernels/float16.h"
#include "kernels/host/codec.h"

namespace spccl::bench {
namespace {

// Small nonzero values of the dtype at uniform random positions.
void FillSparse(DType dtype, double sparsity, uint64_t seed, uint64_t elements, uint8_t* dense) {
  std::mt19937_64 rng(seed);
  const size_t size = SizeOf(dtype);
  const auto threshold = static_cast<uint64_t>((1 - sparsity) * 0x1p53);
  std::memset(dense, 0, elements * size);
  for (uint64_t i = 0; i < elements; ++i) {
    if ((rng() >> 11) >= threshold) continue;
    const int value = static_cast<int>(rng() % 100) + 1;
    uint8_t* to = dense + i * size;
    const float as_float = static_cast<float>(value) / 128.0f;
    const double as_double = as_float;
    const uint16_t as_half =
        dtype == DType::kFloat16 ? FloatToFloat16(as_float) : FloatToBfloat16(as_float);
    const uint64_t as_integer = static_cast<uint64_t>(value);
    const void* from = dtype == DType::kFloat32   ? static_cast<const void*>(&as_float)
                       : dtype == DType::kFloat64 ? static_cast<const void*>(&as_double)
                       : IsFloat(dtype)           ? static_cast<const void*>(&as_half)
                                                  : static_cast<const void*>(&as_integer);
    std::memcpy(to, from, size);
  }
}

// A smooth field with noise, for the lossy formats.
template <class T>
void FillSmooth(uint64_t seed, uint64_t elements, uint8_t* dense) {
  std::mt19937_64 rng(seed);
  std::vector<T> noise(1 << 14);
  std::normal_distribution<T> normal(0, T{0.01});
  for (T& each : noise) each = normal(rng);
  for (uint64_t i = 0; i < elements; ++i) {
    const T value = static_cast<T>(std::sin(static_cast<double>(i) / 500)) + noise[rng() >> 50];
    std::memcpy(dense + i * sizeof(T), &value, sizeof(T));
  }
}

void Fill(const CodecOptions& options, uint64_t elements, uint8_t* dense) {
  if (!IsLossy(options.format)) {
    FillSparse(options.dtype, options.sparsity, options.seed, elements, dense);
  } else if (options.dtype == DType::kFloat64) {
    FillSmooth<double>(options.seed, elements, dense);
  } else {
    FillSmooth<float>(options.seed, elements, dense);
  }
}

Encoded EncodeAs(const CodecOptions& options, const uint8_t* dense, uint64_t elements,
                 uint8_t* frame) {
  if (!IsLossy(options.format)) {
    return Encode(options.format, options.dtype, dense, elements, frame);
  }
  if (options.format == Format::kErrorBound) {
    return EncodeErrorBound(options.dtype, dense, elements, {options.bound, false}, frame);
  }
  // The field is finite and in range.
  return EncodeQsgd(options.format, options.dtype, dense, elements, {.seed = options.seed}, frame)
      .value();
}

// The largest distance between elements; of QSGD's levels, at most 1 over the highest.
template <class T>
double LargestDistance(const uint8_t* a, const uint8_t* b, uint64_t elements) {
  double largest = 0;
  for (uint64_t i = 0; i < elements; ++i) {
    T x, y;
    std::memcpy(&x, a + i * sizeof(T), sizeof(T));
    std::memcpy(&y, b + i * sizeof(T), sizeof(T));
    largest = std::max(largest, std::fabs(static_cast<double>(x) - static_cast<double>(y)));
  }
  return largest;
}

bool DecodedRight(const CodecOptions& options, const uint8_t* source, const uint8_t* target,
                  uint64_t elements) {
  if (!IsLossy(options.format)) {
    return std::memcmp(target, source, elements * SizeOf(options.dtype)) == 0;
  }
  const double distance = options.dtype == DType::kFloat64
                              ? LargestDistance<double>(source, target, elements)
                              : LargestDistance<float>(source, target, elements);
  if (options.format == Format::kErrorBound) return distance <= options.bound;
  const double levels = (1 << (QsgdBits(options.format) - 1)) - 1;
  return distance <= 1.1 / levels;
}

struct Shard {
  Share share;
  std::unique_ptr<PageBuffer> frame;
  Encoded encoded;
};

void KeepBest(double& best, double seconds) {
  best = std::min(best, seconds);
}

#if defined(__x86_64__)
void StreamShard(const std::vector<const uint8_t*>& inputs, const std::vector<uint8_t*>& outputs,
                 uint64_t first, uint64_t count) {
  for (uint64_t at = first; at + 64 <= first + count; at += 64) {
    __m128i line[4] = {};
    for (const uint8_t* input : inputs) {
      for (int i = 0; i < 4; ++i) {
        line[i] = _mm_xor_si128(
            line[i], _mm_load_si128(reinterpret_cast<const __m128i*>(input + at + 16 * i)));
      }
    }
    for (uint8_t* output : outputs) {
      for (int i = 0; i < 4; ++i) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(output + at + 16 * i), line[i]);
      }
    }
  }
  _mm_sfence();
}
#else
void StreamShard(const std::vector<const uint8_t*>& inputs, const std::vector<uint8_t*>& outputs,
                 uint64_t first, uint64_t count) {
  for (uint64_t at = first; at + 64 <= first + count; at += 64) {
    uint64_t line[8] = {};
    for (const uint8_t* input : inputs) {
      uint64_t words[8];
      std::memcpy(words, input + at, 64);
      for (int i = 0; i < 8; ++i) line[i] ^= words[i];
    }
    for (uint8_t* output : outputs) std::memcpy(output + at, line, 64);
  }
}
#endif

}  // namespace

CodecResult MeasureCodec(const CodecOptions& options) {
  const size_t size = SizeOf(options.dtype);
  const uint64_t elements = options.bytes / size;
  PageBuffer source(options.bytes, options.pages), target(options.bytes, options.pages),
      accumulator(options.bytes, options.pages);
  Fill(options, elements, source.data());
  std::memset(accumulator.data(), 0, options.bytes);

  std::vector<Shard> shards(options.threads);
  for (int thread = 0; thread < options.threads; ++thread) {
    Shard& shard = shards[thread];
    shard.share = ShareOf(elements, kTileElements, thread, options.threads);
    shard.frame = std::make_unique<PageBuffer>(
        MaxFrameBytes(options.format, options.dtype, shard.share.count) + kEncodeSlack,
        options.pages);
  }
  const auto copy = [&](int t) {
    const Share& share = shards[t].share;
    std::memcpy(target.data() + share.first * size, source.data() + share.first * size,
                share.count * size);
  };
  // CountNonzeros() reads every byte once and writes none.
  std::vector<uint64_t> counted(options.threads);
  const auto read = [&](int t) {
    counted[t] = CountNonzeros(options.dtype, source.data() + shards[t].share.first * size,
                               shards[t].share.count);
  };
  const auto encode = [&](int t) {
    Shard& shard = shards[t];
    shard.encoded = EncodeAs(options, source.data() + shard.share.first * size, shard.share.count,
                             shard.frame->data());
  };
  const auto decode = [&](int t) {
    Decode(shards[t].frame->data(), target.data() + shards[t].share.first * size);
  };
  const auto reduce = [&](int t) {
    ReduceInto(shards[t].frame->data(), accumulator.data() + shards[t].share.first * size,
               options.dtype);
  };
  std::vector<char> valid(options.threads);
  const auto validate = [&](int t) {
    valid[t] = Validate(shards[t].frame->data(), shards[t].encoded.frame_bytes, options.dtype,
                        shards[t].share.count)
                   .ok();
  };

  constexpr double kNever = std::numeric_limits<double>::infinity();
  CodecResult result{kNever, kNever, kNever, kNever, kNever, kNever, 0, 0, HugePageBytes(), true};
  Team team(options.threads);
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    KeepBest(result.memcpy_s, team.Time(copy));
    KeepBest(result.read_s, team.Time(read));
    KeepBest(result.encode_s, team.Time(encode));
    KeepBest(result.validate_s, team.Time(validate));
    KeepBest(result.decode_s, team.Time(decode));
    KeepBest(result.reduce_s, team.Time(reduce));
  }
  for (const Shard& shard : shards) {
    result.frame_bytes += shard.encoded.frame_bytes;
    result.nnz += shard.encoded.nnz;
  }
  for (int t = 0; t < options.threads; ++t) {
    result.decoded_right = result.decoded_right && valid[t];
    if (options.format != Format::kDense && !IsLossy(options.format)) {
      result.decoded_right = result.decoded_right && counted[t] == shards[t].encoded.nnz;
    }
  }
  result.decoded_right =
      result.decoded_right && DecodedRight(options, source.data(), target.data(), elements);
  return result;
}

StreamResult MeasureStream(const StreamOptions& options) {
  std::vector<std::unique_ptr<PageBuffer>> buffers;
  std::vector<const uint8_t*> inputs;
  std::vector<uint8_t*> outputs;
  for (int rank = 0; rank < options.ranks; ++rank) {
    buffers.push_back(std::make_unique<PageBuffer>(options.bytes, options.pages));
    inputs.push_back(buffers.back()->data());
    buffers.push_back(std::make_unique<PageBuffer>(options.bytes, options.pages));
    outputs.push_back(buffers.back()->data());
  }
  Team team(options.threads);
  std::vector<double> seconds;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    seconds.push_back(team.Time([&](int thread) {
      const Share share = ShareOf(options.bytes, 4096, thread, options.threads);
      StreamShard(inputs, outputs, share.first, share.count);
    }));
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2], HugePageBytes()};
}

}  // namespace spccl::bench
