// A program of one GPU, the fake CUDA's, and a scripted daemon.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/client/client_test.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::testing {

class GpuLaunchTest : public ClientTest {
 protected:
  static constexpr size_t kCount = 1000, kBytes = kCount * sizeof(float);

  GpuLaunchTest() {
    ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY, 1);
    stream_ = gpu_.NewStream();
  }
  ~GpuLaunchTest() override {
    gpu_.Synchronize(stream_);
    gpu_.Must(gpu_.driver().StreamDestroy(stream_));
  }

  void* NewBuffer(float value = 1) const {
    void* const memory = gpu_.Allocate(kBytes);
    gpu_.Upload(std::vector<float>(kCount, value), memory, stream_);
    return memory;
  }
  spcclResult_t Copy(const void* send, void* recv, spcclComm_t comm) const {
    return spcclAllReduce(send, recv, kCount, spcclFloat32, spcclSum, comm,
                          reinterpret_cast<spcclStream_t>(stream_));
  }
  // A graph of one such call, to be launched; the caller destroys it.
  cuda::GraphExec CaptureCopy(const void* send, void* recv, spcclComm_t comm) const {
    const cuda::Driver& driver = gpu_.driver();
    cuda::Graph graph = nullptr;
    cuda::GraphExec exec = nullptr;
    gpu_.Must(driver.StreamBeginCapture(stream_, cuda::kStreamCaptureModeGlobal));
    EXPECT_EQ(Copy(send, recv, comm), spcclSuccess) << LastError();
    gpu_.Must(driver.StreamEndCapture(stream_, &graph));
    gpu_.Must(driver.GraphInstantiate(&exec, graph, 0));
    gpu_.Must(driver.GraphDestroy(graph));
    return exec;
  }
  bool Holds(const void* memory, float value) const {
    return gpu_.Download<float>(memory, kCount, stream_) == std::vector<float>(kCount, value);
  }
  bool IsBusy() const { return gpu_.driver().StreamQuery(stream_) == cuda::kErrorNotReady; }
  static spcclResult_t HealthOf(spcclComm_t comm) {
    spcclResult_t health = spcclSuccess;
    EXPECT_EQ(spcclCommGetAsyncError(comm, &health), spcclSuccess);
    return health;
  }
  void ExpectPointersBetweenElementsAreRefused() {
    const spcclComm_t comm = OneRank();
    auto* const memory = static_cast<std::byte*>(gpu_.Allocate(3 * kBytes));
    EXPECT_EQ(Copy(memory + 2, memory + 2 * kBytes, comm), spcclInvalidArgument);
    EXPECT_THAT(LastError(comm),
                ::testing::AllOf(::testing::HasSubstr("sendbuff is 0x"),
                                 ::testing::HasSubstr("no multiple of the 4 bytes of an element")));
    EXPECT_EQ(Copy(memory, memory + 2 * kBytes - 1, comm), spcclInvalidArgument);
    EXPECT_THAT(LastError(comm), ::testing::HasSubstr("recvbuff is 0x"));
    EXPECT_EQ(HealthOf(comm), spcclSuccess);
    EXPECT_EQ(Copy(memory, memory + 2 * kBytes, comm), spcclSuccess) << LastError();
    gpu_.Synchronize(stream_);
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  }

  const GpuProgram gpu_{LoadFakeDriver()};
  cuda::Stream stream_;
};

}  // namespace spccl::testing
