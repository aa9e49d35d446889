// The GPUs of this node, as the daemon owns them: a context and one issuing thread each.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "kernels/device/codec_table.h"

namespace spccl::runtime {

// One GPU. Thread-safe.
class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual int index() const = 0;  // in Gpus; MemoryView::gpu()
  virtual const cuda::Uuid& uuid() const = 0;
  virtual const std::string& name() const = 0;
  virtual cuda::Context context() const = 0;
  // Runs `work` on the GPU's issuing thread, whose current context is the GPU's, in the order of
  // the calls. The only thread that enqueues on this GPU.
  virtual void Post(std::function<void()> work) = 0;
};

class Gpus {
 public:
  struct Options {
    std::string driver_library;  // empty: the system's
    std::string codec_library;   // libspccl_device.so; empty: beside the daemon's libraries
    std::string nccl_library;    // empty: libnccl.so.2
  };
  // NotFound or Unavailable where there is no GPU: the daemon then serves host memory only.
  static absl::StatusOr<std::unique_ptr<Gpus>> Open(const Options& options);
  virtual ~Gpus() = default;

  virtual const std::shared_ptr<const cuda::Driver>& driver() const = 0;
  virtual const device::CodecTable& codec() const = 0;
  virtual size_t count() const = 0;
  virtual Gpu& at(size_t index) = 0;
  // nullptr: not one of them.
  virtual Gpu* Find(const cuda::Uuid& uuid) = 0;
  // Whether kernels of one reach the other's memory.
  virtual bool reach(size_t from, size_t to) const = 0;
};

}  // namespace spccl::runtime
