// The GPU of a rank under test, and memory there with a copy on the host that data is made and
// checked in. The driver is met at run time: nothing here links to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"

namespace spccl::bench {

// What --device says.
struct DeviceWish {
  bool cuda = false;
  int ordinal = -1;  // of the one GPU of all ranks; -1: each takes the next one, round and round
  static absl::StatusOr<DeviceWish> Parse(std::string_view text);  // "host", "cuda", "cuda:N"
};

// One device's primary context, current for the thread that opened it, and a stream. Used by that
// thread only. Nothing of CUDA may have been initialised in this process's parent.
class Gpu {
 public:
  // `library`: the driver; empty: the system's. Requires wish.cuda.
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(const DeviceWish& wish, int rank,
                                                   const std::string& library);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const cuda::Driver& driver() const { return *driver_; }
  int ordinal() const { return device_; }
  const std::string& name() const { return name_; }  // "NVIDIA H200"
  int choices() const { return choices_; }           // GPUs that ranks take in turn
  cuda::Stream stream() const { return stream_; }
  // Until all that was put on the stream is done.
  absl::Status Synchronize() const;

 private:
  explicit Gpu(std::shared_ptr<const cuda::Driver> driver) : driver_(std::move(driver)) {}
  absl::Status Start(const DeviceWish& wish, int rank);

  const std::shared_ptr<const cuda::Driver> driver_;
  int choices_ = 1;
  int device_ = -1;  // once its context is held
  cuda::Stream stream_ = nullptr;
  std::string name_;
};

// Memory of a GPU, and as much of the host's.
class GpuBuffer {
 public:
  // `gpu` must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuBuffer>> Create(const Gpu* gpu, uint64_t bytes);
  ~GpuBuffer();
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  std::byte* host() const { return host_.get(); }
  // As a pointer, which is the GPU's and not for this process to follow.
  std::byte* device() const;
  uint64_t bytes() const { return bytes_; }

  // All of it, after what is on the stream; back when it is done.
  absl::Status Upload() const;
  absl::Status Download() const;

 private:
  GpuBuffer(const Gpu* gpu, uint64_t bytes) : gpu_(gpu), bytes_(bytes) {}
  absl::Status Copy(cuda::DevicePtr to, cuda::DevicePtr from, std::string_view what) const;

  const Gpu* const gpu_;
  const uint64_t bytes_;
  std::unique_ptr<std::byte[]> host_;
  cuda::DevicePtr device_ = 0;
};

// What was put on the GPU's stream while it was captured, to be run again and again. What it uses
// must outlive it.
class GpuGraph {
 public:
  // Captures what `work` puts on the stream, in the mode that programs' captures have by default.
  // `gpu` must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuGraph>> Capture(
      const Gpu* gpu, const std::function<absl::Status()>& work);
  // Once all launches have ended.
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;

  // Puts all of it on the stream.
  absl::Status Launch() const;

 private:
  explicit GpuGraph(const Gpu* gpu) : gpu_(gpu) {}

  const Gpu* const gpu_;
  cuda::Graph graph_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
};

}  // namespace spccl::bench
