// One vector of the benchmark: a size, a type and a sparsity, all formats and rivals on it, round
// by round, so that a clock that changes changes for all.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/frames.cuh"
#include "bench/gpu/report.h"
#include "bench/gpu/rivals.cuh"

#if __has_include(<cusparse.h>)
#include "bench/gpu/cusparse_rival.cuh"
#else
#include "bench/gpu/no_cusparse_rival.cuh"
#endif

namespace spccl::gpu_bench {

// A mixer whose outputs look random, one an index.
__device__ inline uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Elements between 1/2 and 1, with either sign, one in 2^32 / threshold of them; zeros else.
template <class U>
__global__ void FillSparse(U* dense, uint64_t elements, uint64_t seed, uint32_t threshold) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += stride) {
    const uint64_t bits = Mix(seed + i);
    const float value = 0.5f + static_cast<float>(bits >> 40) * 0x1p-25f;
    const bool is_there = static_cast<uint32_t>(bits) < threshold;
    dense[i] = is_there ? ElementOf<U>::Bits((bits >> 39 & 1) != 0 ? value : -value) : U{0};
  }
}

template <class U>
__global__ void CountDifferences(const U* a, const U* b, uint64_t elements,
                                 unsigned long long* count) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += stride) {
    if (a[i] != b[i]) atomicAdd(count, 1ull);
  }
}

struct Settings {
  int repeats = 11;
  int warmup = 2;
  int blocks = 0;  // for kernels of the benchmark's own
  cudaStream_t stream = nullptr;
};

// What runs round by round.
struct Contender {
  std::string name;
  std::function<void()> run;
  std::vector<float> milliseconds = {};
};

inline double SecondsOf(const std::vector<Contender>& contenders, const std::string& name) {
  for (const Contender& contender : contenders) {
    if (contender.name == name) return MedianOf(contender.milliseconds) / 1e3;
  }
  return 0;
}

inline void Race(std::vector<Contender>& contenders, const Settings& settings) {
  cudaEvent_t begin, end;
  SPCCL_MUST(cudaEventCreate(&begin));
  SPCCL_MUST(cudaEventCreate(&end));
  for (int round = -settings.warmup; round < settings.repeats; ++round) {
    for (Contender& contender : contenders) {
      SPCCL_MUST(cudaEventRecord(begin, settings.stream));
      contender.run();
      SPCCL_MUST(cudaEventRecord(end, settings.stream));
      SPCCL_MUST(cudaEventSynchronize(end));
      float milliseconds = 0;
      SPCCL_MUST(cudaEventElapsedTime(&milliseconds, begin, end));
      if (round >= 0) contender.milliseconds.push_back(milliseconds);
    }
  }
  SPCCL_MUST(cudaGetLastError());
  SPCCL_MUST(cudaEventDestroy(begin));
  SPCCL_MUST(cudaEventDestroy(end));
}

template <class U>
class Group {
 public:
  Group(const Kernels& kernels, const CusparseLibrary* cusparse, const Settings& settings,
        DType dtype, uint64_t bytes, double sparsity)
      : kernels_(kernels),
        settings_(settings),
        dtype_(dtype),
        bytes_(bytes),
        elements_(bytes / sizeof(U)),
        sparsity_(sparsity),
        dense_(bytes),
        local_(bytes),
        output_(bytes),
        sum_(bytes) {
    const double density = 1 - sparsity;
    const uint32_t threshold = static_cast<uint32_t>(density * 4294967296.0);
    FillSparse<<<settings.blocks, 256, 0, settings.stream>>>(dense_.as<U>(), elements_, 1,
                                                             threshold);
    FillSparse<<<settings.blocks, 256, 0, settings.stream>>>(local_.as<U>(), elements_,
                                                             uint64_t{1} << 40, threshold);
    SPCCL_MUST(
        cudaMemcpyAsync(sum_.get(), local_.get(), bytes, cudaMemcpyDefault, settings.stream));
    for (const Format format : {Format::kPici, Format::kPiciColumn, Format::kCoo, Format::kGap}) {
      frames_.push_back(std::make_unique<Frames>(kernels, format, dtype, elements_));
      frames_.back()->Encode(dense_.get());
      frames_.back()->Learn();
    }
    fused_ = std::make_unique<Frames>(kernels, Format::kPici, dtype, elements_);
    fused_->AddAndEncode(*frames_.front(), local_.get());
    fused_->Learn();
    // Sums have nonzeros where either has one.
    const uint64_t most = std::min(elements_, fused_->nnz() + frames_.front()->nnz());
    cub_ = std::make_unique<CubRival<U>>(elements_, most, settings.blocks);
    if (cusparse != nullptr) {
      cusparse_ = std::make_unique<CusparseRival>(
          *cusparse, sizeof(U) == 4 ? CUDA_R_32F : CUDA_R_16BF, sizeof(U), elements_, most);
    }
  }

  // Whether what is measured does what it should; says what does not.
  bool IsRight() {
    bool right = true;
    for (const auto& frames : frames_) {
      SPCCL_MUST(cudaMemsetAsync(output_.get(), 0xFF, bytes_, settings_.stream));
      frames->Decode(output_.get());
      if (Differences() == 0) continue;
      std::printf("WRONG: %s does not give back what was encoded\n",
                  std::string(NameOf(frames->format())).c_str());
      right = false;
    }
    cub_->Encode(dense_.as<U>(), settings_.stream);
    if (cub_->Found(settings_.stream) != frames_.front()->nnz()) {
      std::printf("WRONG: CUB finds another number of nonzeros\n");
      right = false;
    }
    return right;
  }

  // Measures everything and appends its rows.
  void Measure(std::vector<Row>& rows) {
    std::vector<Contender> contenders;
    AddOurs(contenders);
    AddRivals(contenders);
    Race(contenders, settings_);
    const bool compares = cusparse_ != nullptr && cusparse_->ok();
    for (const char* const operation : {"encode", "decode", "reduce-into", "fused"}) {
      for (const auto& frames : frames_) {
        const std::string format(NameOf(frames->format()));
        const double seconds = SecondsOf(contenders, std::string(operation) + " " + format);
        if (seconds <= 0) continue;  // fused is of linear Pici alone
        Row row = {.operation = operation,
                   .format = format,
                   .dtype = std::string(NameOf(dtype_)),
                   .sparsity = sparsity_,
                   .bytes = bytes_,
                   .frame_bytes = frames->bytes()};
        row.moved_bytes = MovedBytes(operation, bytes_, sizeof(U), 1 - sparsity_, frames->bytes(),
                                     fused_->bytes());
        row.seconds = seconds;
        row.copy_seconds = SecondsOf(contenders, "copy");
        row.cub_seconds = SecondsOf(contenders, std::string("cub ") + operation);
        if (compares) {
          row.cusparse_seconds = SecondsOf(contenders, std::string("cusparse ") + operation);
        }
        rows.push_back(row);
      }
    }
    if (cusparse_ != nullptr && !cusparse_->ok()) std::printf("cuSPARSE refuses this vector\n");
  }

 private:
  uint64_t Differences() {
    DeviceMemory count(sizeof(unsigned long long));
    CountDifferences<<<settings_.blocks, 256, 0, settings_.stream>>>(
        dense_.as<U>(), output_.as<U>(), elements_, count.as<unsigned long long>());
    unsigned long long found = 0;
    SPCCL_MUST(
        cudaMemcpyAsync(&found, count.get(), sizeof(found), cudaMemcpyDefault, settings_.stream));
    SPCCL_MUST(cudaStreamSynchronize(settings_.stream));
    return found;
  }

  void AddOurs(std::vector<Contender>& contenders) {
    contenders.push_back({"copy", [this] {
                            SPCCL_MUST(cudaMemcpyAsync(output_.get(), dense_.get(), bytes_,
                                                       cudaMemcpyDeviceToDevice, settings_.stream));
                          }});
    for (const auto& owned : frames_) {
      Frames* const frames = owned.get();
      const std::string format(NameOf(frames->format()));
      contenders.push_back({"encode " + format, [=, this] { frames->Encode(dense_.get()); }});
      contenders.push_back({"decode " + format, [=, this] { frames->Decode(output_.get()); }});
      contenders.push_back(
          {"reduce-into " + format, [=, this] { frames->ReduceInto(sum_.get()); }});
    }
    contenders.push_back(
        {"fused pici", [this] { fused_->AddAndEncode(*frames_.front(), local_.get()); }});
  }

  // Decode and add take what the rival's own encode made just before. A user without a fused hop
  // adds, then selects.
  void AddRivals(std::vector<Contender>& contenders) {
    const uint64_t nnz = frames_.front()->nnz();
    contenders.push_back(
        {"cub encode", [this] { cub_->Encode(dense_.as<U>(), settings_.stream); }});
    contenders.push_back(
        {"cub decode", [=, this] { cub_->Decode(nnz, output_.as<U>(), settings_.stream); }});
    contenders.push_back(
        {"cub reduce-into", [=, this] { cub_->Add(nnz, sum_.as<U>(), settings_.stream); }});
    if (cusparse_ != nullptr) {
      contenders.push_back({"cusparse encode", [this] { cusparse_->Encode(dense_.get()); }});
      contenders.push_back({"cusparse decode", [this] { cusparse_->Decode(output_.get()); }});
      contenders.push_back({"cusparse reduce-into", [=, this] {
                              cusparse_->Add(cub_->indices(), cub_->values(), nnz, sum_.get());
                            }});
      contenders.push_back({"cusparse fused", [=, this] {
                              cusparse_->Add(cub_->indices(), cub_->values(), nnz, sum_.get());
                              cusparse_->Encode(sum_.get());
                            }});
    }
    // Last: it leaves other indices behind than the next round's adds want, but for cub encode.
    contenders.push_back({"cub fused", [=, this] {
                            cub_->Add(nnz, sum_.as<U>(), settings_.stream);
                            cub_->Encode(sum_.as<U>(), settings_.stream);
                          }});
  }

  const Kernels& kernels_;
  const Settings settings_;
  const DType dtype_;
  const uint64_t bytes_, elements_;
  const double sparsity_;
  DeviceMemory dense_, local_, output_, sum_;
  std::vector<std::unique_ptr<Frames>> frames_;
  std::unique_ptr<Frames> fused_;
  std::unique_ptr<CubRival<U>> cub_;
  std::unique_ptr<CusparseRival> cusparse_;
};

}  // namespace spccl::gpu_bench
