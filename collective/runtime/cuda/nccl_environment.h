// What a world of NCCL's (collective/transport/nccl) is given of a GPU: its issuing thread, a
// stream of its own there, and frames in its memory.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/transport/nccl/environment.h"

namespace spccl::runtime {

// The GPU outlives it. Thread-safe, as Issuer says.
class GpuIssuer final : public transport::nccl::Issuer {
 public:
  explicit GpuIssuer(Gpu& gpu) : gpu_(gpu) {}
  ~GpuIssuer() override {
    if (stream_ == nullptr) return;
    gpu_.Post([&gpu = gpu_, stream = stream_] { gpu.EndStream(stream); });
  }
  GpuIssuer(const GpuIssuer&) = delete;
  GpuIssuer& operator=(const GpuIssuer&) = delete;

  // Not one of those for ranks' waits, which are few: it stays as long as the world does.
  absl::Status Open() override {
    SPCCL_ASSIGN_OR_RETURN(stream_, gpu_.MakeStream());
    return absl::OkStatus();
  }
  void Post(std::function<void()> work) override { gpu_.Post(std::move(work)); }
  cuda::Stream stream() override { return static_cast<cuda::Stream>(stream_); }
  // A group waits for other nodes: the world has its own deadline for it.
  void WhenDone(std::function<void(absl::Status)> done) override {
    const auto waits = [] { return true; };
    gpu_.WhenEnded(stream_, waits, std::move(done));
  }

 private:
  Gpu& gpu_;
  void* stream_ = nullptr;
};

// The GPU outlives it and its frames.
class GpuFrames final : public transport::nccl::FrameSource {
 public:
  explicit GpuFrames(Gpu& gpu) : gpu_(gpu) {}
  absl::StatusOr<transport::Frame> Take(size_t bytes) override { return gpu_.TakeFrame(bytes); }

 private:
  Gpu& gpu_;
};

}  // namespace spccl::runtime
