// Arrays in GPU memory that notice writes past their ends, and the table of kernels, for the codec
// suite of tests/gpu. One thread.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "kernels/device/codec_table.h"
#include "tests/gpu/gpu_driver.h"

namespace spccl::gpu_test {

using Bytes = std::vector<uint8_t>;

class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (memory_ != 0) (void)Cuda().MemFree(memory_);
  }

  // From now on `size` bytes that lie `offset` bytes behind a multiple of 256, a copy of `content`,
  // or canaries if that is null. What was there before is gone.
  void Make(const void* content, size_t size, size_t offset = 0) {
    size_ = size;
    offset_ = offset;
    Bytes image(offset + size + kGuard, kCanary);
    if (content != nullptr && size > 0) std::memcpy(&image[offset], content, size);
    if (image.size() > capacity_) {
      if (memory_ != 0) SPCCL_MUST(MemFree(memory_));
      SPCCL_MUST(MemAlloc(&memory_, image.size()));
      capacity_ = image.size();
    }
    Upload(memory_, image.data(), image.size());
  }
  void MakeZeros(size_t size) {
    const Bytes zeros(size);
    Make(zeros.data(), size);
  }

  void* get() const { return reinterpret_cast<void*>(memory_ + offset_); }

  // What it holds. `intact` becomes false if something outside was written.
  Bytes Read(bool& intact) const {
    Bytes image(offset_ + size_ + kGuard);
    Download(image.data(), memory_, image.size());
    for (size_t i = 0; i < image.size(); ++i) {
      if ((i < offset_ || i >= offset_ + size_) && image[i] != kCanary) intact = false;
    }
    return {image.begin() + static_cast<ptrdiff_t>(offset_),
            image.begin() + static_cast<ptrdiff_t>(offset_ + size_)};
  }

 private:
  static constexpr uint8_t kCanary = 0xC5;
  static constexpr size_t kGuard = 256;
  cuda::DevicePtr memory_ = 0;
  size_t capacity_ = 0, size_ = 0, offset_ = 0;
};

// The kernels on a stream, and what was found wrong so far.
class Suite {
 public:
  // `library`: libspccl_device.so.
  explicit Suite(const char* library) {
    UseFirstGpu();
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) Stop(kFailed, "the library of kernels", dlerror());
    const auto get =
        reinterpret_cast<device::GetCodecTable>(dlsym(handle, device::kCodecTableSymbol));
    if (get == nullptr) Stop(kFailed, library, "has no table");
    table_ = get();
    Expect(table_->version == device::kCodecTableVersion &&
               table_->bytes == sizeof(device::CodecTable),
           "the table is of the version that is tested");
    cuda::Stream stream = nullptr;
    SPCCL_MUST(StreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0));
    queue_.stream = stream;
    Run(table_->resident_blocks(0, &queue_.resident_blocks), "resident_blocks");
    Expect(queue_.resident_blocks > 0, "there are resident blocks");
  }

  const device::CodecTable& table() const { return *table_; }
  const device::Queue* queue() const { return &queue_; }
  cuda::Stream stream() const { return static_cast<cuda::Stream>(queue_.stream); }

  // A call of the table's: an error ends the process, as those of a GPU do not go away.
  void Run(int error, const char* what) const {
    if (error != 0) Stop(kFailed, what, table_->error_text(error));
    if (queue_.stream != nullptr) Drain(stream(), what);
  }

  // Counts a check; what is wrong is told with the case that is being tested, twenty at most.
  void Check(bool condition, const char* what) {
    ++checks_;
    if (condition) return;
    std::printf("wrong: %s: %s\n", case_.c_str(), what);
    if (++wrong_ == 20) Stop(kFailed, "codec suite", "too much is wrong");
  }
  void SetCase(std::string name) { case_ = std::move(name); }
  uint64_t checks() const { return checks_; }
  int wrong() const { return wrong_; }

 private:
  const device::CodecTable* table_ = nullptr;
  device::Queue queue_ = {};
  std::string case_;
  uint64_t checks_ = 0;
  int wrong_ = 0;
};

}  // namespace spccl::gpu_test
