// The fake's kernels, on the lane and by the host, beside the host's codecs.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/codec_table.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/seed.h"

namespace spccl::testing {
namespace {

using cuda::DevicePtr;
using cuda::kSuccess;

// All tests of this program: only the fake finds device memory.
[[maybe_unused]] const int kNoHostAccess = ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", "0", 1);

const device::CodecTable& Table() {
  static void* const library = ::dlopen(SPCCL_FAKE_DEVICE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  const auto get =
      reinterpret_cast<device::GetCodecTable>(::dlsym(library, device::kCodecTableSymbol));
  return *get();
}

// Elements below and above what runs on the lane.
class DeviceCodecTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  DeviceCodecTest() {
    EXPECT_EQ(driver_->DevicePrimaryCtxRetain(&context_, 0), kSuccess);
    EXPECT_EQ(driver_->CtxPushCurrent(context_), kSuccess);
    EXPECT_EQ(driver_->StreamCreateWithPriority(&stream_, cuda::kStreamNonBlocking, 0), kSuccess);
    queue_.stream = stream_;
    EXPECT_EQ(Table().resident_blocks(0, &queue_.resident_blocks), 0);
    dense_.resize(elements());
    for (float& value : dense_) {
      if (rng_() % 10 == 0) value = static_cast<float>(static_cast<int>(rng_() % 2000) - 1000);
    }
    device_dense_ = Upload(dense_.data(), dense_bytes());
  }
  ~DeviceCodecTest() override {
    Wait();
    for (const DevicePtr pointer : memory_) EXPECT_EQ(driver_->MemFree(pointer), kSuccess);
    EXPECT_EQ(driver_->StreamDestroy(stream_), kSuccess);
    cuda::Context popped;
    EXPECT_EQ(driver_->CtxPopCurrent(&popped), kSuccess);
    EXPECT_EQ(driver_->DevicePrimaryCtxRelease(0), kSuccess);
  }

  uint64_t elements() const { return GetParam(); }
  uint64_t dense_bytes() const { return elements() * sizeof(float); }
  template <class T = void>
  T* Allocate(uint64_t bytes) {
    DevicePtr pointer = 0;
    EXPECT_EQ(driver_->MemAlloc(&pointer, bytes), kSuccess);
    EXPECT_EQ(driver_->MemsetD8Async(pointer, 0, bytes, stream_), kSuccess);
    memory_.push_back(pointer);
    return reinterpret_cast<T*>(pointer);
  }
  void* Upload(const void* from, uint64_t bytes) {
    void* const to = Allocate(bytes);
    EXPECT_EQ(driver_->MemcpyAsync(reinterpret_cast<DevicePtr>(to),
                                   reinterpret_cast<DevicePtr>(from), bytes, stream_),
              kSuccess);
    return to;
  }
  template <class T>
  std::vector<T> Download(const void* from, uint64_t count) {
    std::vector<T> to(count);
    EXPECT_EQ(driver_->MemcpyAsync(reinterpret_cast<DevicePtr>(to.data()),
                                   reinterpret_cast<DevicePtr>(from), count * sizeof(T), stream_),
              kSuccess);
    return to;
  }
  void Wait() { EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess); }

  // The host's frame of the elements.
  std::vector<char> HostFrame(Format format, const void* dense) const {
    std::vector<char> frame(MaxFrameBytes(format, DType::kFloat32, elements()) + kEncodeSlack);
    const Encoded encoded = Encode(format, DType::kFloat32, dense, elements(), frame.data());
    frame.resize(encoded.frame_bytes);
    return frame;
  }
  device::DeviceFrame Describe(const std::vector<char>& frame, const void* device_frame) const {
    FrameHeader header;
    std::memcpy(&header, frame.data(), sizeof(header));
    return {header.format, header.dtype, header.element_count, header.nnz, device_frame};
  }
  void* Scratch(Format format) {
    return Allocate(Table().scratch_bytes(static_cast<uint8_t>(format),
                                          static_cast<uint8_t>(DType::kFloat32), elements()));
  }

  static constexpr auto kFloat = static_cast<uint8_t>(DType::kFloat32);
  static constexpr auto kBfloat = static_cast<uint8_t>(DType::kBfloat16);
  static constexpr auto kSum = static_cast<uint8_t>(RedOp::kSum);

  std::shared_ptr<const cuda::Driver> driver_ = LoadFakeDriver();
  std::mt19937_64 rng_{TestSeed()};
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  device::Queue queue_ = {};
  std::vector<DevicePtr> memory_;
  std::vector<float> dense_;
  void* device_dense_ = nullptr;
};

TEST_P(DeviceCodecTest, FramesAreTheHostsAndComeBack) {
  for (const Format format :
       {Format::kDense, Format::kPici, Format::kPiciColumn, Format::kCoo, Format::kGap}) {
    void* const frame = Allocate(MaxFrameBytes(format, DType::kFloat32, elements()));
    EXPECT_EQ(Table().encode(&queue_, static_cast<uint8_t>(format), kFloat, device_dense_,
                             elements(), frame, Scratch(format)),
              0);
    const std::vector<char> expected = HostFrame(format, dense_.data());
    EXPECT_EQ(Download<char>(frame, expected.size()), expected) << NameOf(format);

    const device::DeviceFrame described = Describe(expected, frame);
    void* const decoded = Allocate(dense_bytes());
    auto* const faults = Allocate<uint32_t>(sizeof(uint32_t));
    EXPECT_EQ(Table().validate_body(&queue_, &described, faults), 0);
    EXPECT_EQ(Table().decode(&queue_, &described, decoded), 0);
    EXPECT_EQ(Download<uint32_t>(faults, 1)[0], 0u) << NameOf(format);
    EXPECT_EQ(Download<float>(decoded, elements()), dense_) << NameOf(format);
  }
}

TEST_P(DeviceCodecTest, AddsFramesToAccumulatorsAndFrames) {
  const std::vector<char> frame = HostFrame(Format::kPici, dense_.data());
  const device::DeviceFrame described = Describe(frame, Upload(frame.data(), frame.size()));
  EXPECT_EQ(Table().reduce_into(&queue_, &described, device_dense_, kFloat), 0);
  std::vector<float> twice = dense_;
  for (float& value : twice) value *= 2;
  EXPECT_EQ(Download<float>(device_dense_, elements()), twice);

  for (float& value : twice) value *= 1.5f;
  void* const to = Allocate(MaxFrameBytes(Format::kPici, DType::kFloat32, elements()));
  EXPECT_EQ(Table().add_and_encode(&queue_, &described, kFloat, device_dense_, to,
                                   Scratch(Format::kPici)),
            0);
  const std::vector<char> expected = HostFrame(Format::kPici, twice.data());
  EXPECT_EQ(Download<char>(to, expected.size()), expected);
}

TEST_P(DeviceCodecTest, CountsAndReduces) {
  auto* const count = Allocate<uint64_t>(sizeof(uint64_t));
  EXPECT_EQ(Table().count_nonzeros(&queue_, kFloat, device_dense_, elements(), count), 0);
  EXPECT_EQ(Download<uint64_t>(count, 1)[0],
            CountNonzeros(DType::kFloat32, dense_.data(), elements()));
  void* const other = Upload(dense_.data(), dense_bytes());
  const void* const inputs[] = {device_dense_, other};
  void* const outputs[] = {device_dense_, Allocate(dense_bytes())};
  EXPECT_EQ(Table().reduce(&queue_, kFloat, kSum, inputs, 2, outputs, 2, elements()), 0);
  std::vector<float> twice = dense_;
  for (float& value : twice) value *= 2;
  EXPECT_EQ(Download<float>(outputs[0], elements()), twice);
  EXPECT_EQ(Download<float>(outputs[1], elements()), twice);
}

TEST_P(DeviceCodecTest, StepsOfARing) {
  std::vector<uint16_t> narrow(elements());
  Finish(DType::kBfloat16, RedOp::kSum, dense_.data(), narrow.data(), elements(), 1);
  const void* const input = Upload(narrow.data(), elements() * 2);
  void* const sum = Allocate(dense_bytes());
  EXPECT_EQ(Table().widen(&queue_, kBfloat, kSum, input, sum, elements()), 0);
  EXPECT_EQ(Table().accumulate(&queue_, kFloat, kSum, sum, sum, elements()), 0);
  void* const outputs[] = {Allocate(elements() * 2), Allocate(elements() * 2)};
  EXPECT_EQ(Table().finish(&queue_, kBfloat, static_cast<uint8_t>(RedOp::kAvg), sum, outputs, 2,
                           elements(), 2),
            0);
  void* const copies[] = {Allocate(elements() * 2)};
  EXPECT_EQ(Table().copy_to_many(&queue_, kBfloat, outputs[1], copies, 1, elements()), 0);
  EXPECT_EQ(Download<uint16_t>(outputs[0], elements()), narrow);
  EXPECT_EQ(Download<uint16_t>(copies[0], elements()), narrow);
}

TEST_P(DeviceCodecTest, RefusesWhatThereIsNoKernelFor) {
  EXPECT_NE(Table().encode(&queue_, static_cast<uint8_t>(Format::kQsgd4), kFloat, device_dense_,
                           elements(), device_dense_, device_dense_),
            0);
  EXPECT_NE(Table().widen(&queue_, 77, kSum, device_dense_, device_dense_, 1), 0);
}

INSTANTIATE_TEST_SUITE_P(LaneAndHost, DeviceCodecTest, ::testing::Values(5000, 50000));

}  // namespace
}  // namespace spccl::testing
