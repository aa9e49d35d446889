// What a program does that uses a GPU, in few words, for tests: on the fake driver, or on a GPU's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/cuda/driver.h"
#include "base/status.h"

namespace spccl::testing {

// One device's primary context, current for this thread from now on. Everything fails loudly.
class GpuProgram {
 public:
  explicit GpuProgram(std::shared_ptr<const cuda::Driver> driver, int device = 0)
      : driver_(std::move(driver)) {
    Must(driver_->DevicePrimaryCtxRetain(&context_, device));
    Must(driver_->CtxSetCurrent(context_));
  }

  const cuda::Driver& driver() const { return *driver_; }
  cuda::Context context() const { return context_; }

  cuda::Stream NewStream() const {
    cuda::Stream stream = nullptr;
    Must(driver_->StreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0));
    return stream;
  }
  void* Allocate(size_t bytes) const {
    cuda::DevicePtr pointer = 0;
    Must(driver_->MemAlloc(&pointer, bytes));
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as the runtime API gives it
    return reinterpret_cast<void*>(pointer);
  }
  void Free(void* memory) const { Must(driver_->MemFree(reinterpret_cast<uint64_t>(memory))); }

  template <typename T>
  void Upload(const std::vector<T>& values, void* to, cuda::Stream stream) const {
    Must(driver_->MemcpyAsync(reinterpret_cast<uint64_t>(to),
                              reinterpret_cast<uint64_t>(values.data()), values.size() * sizeof(T),
                              stream));
    Synchronize(stream);
  }
  // Waits for the stream first.
  template <typename T>
  std::vector<T> Download(const void* from, size_t count, cuda::Stream stream) const {
    std::vector<T> values(count);
    Must(driver_->MemcpyAsync(reinterpret_cast<uint64_t>(values.data()),
                              reinterpret_cast<uint64_t>(from), count * sizeof(T), stream));
    Synchronize(stream);
    return values;
  }
  void Synchronize(cuda::Stream stream) const { Must(driver_->StreamSynchronize(stream)); }

  void Must(cuda::Result result) const {
    const absl::Status status = driver_->ToStatus(result, "test");
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    SPCCL_CHECK(status.ok());
  }

 private:
  const std::shared_ptr<const cuda::Driver> driver_;
  cuda::Context context_ = nullptr;
};

}  // namespace spccl::testing
