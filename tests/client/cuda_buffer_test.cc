#include "client/cuda_buffer.h"

#include <cstdlib>
#include <memory>

#include "client/process.h"
#include "tests/client/client_test.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"
#include "tests/support/status_test.h"

namespace spccl::client {
namespace {

using shm::RequestType;
using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::testing::HasSubstr;

constexpr size_t kBytes = 4096;

class CudaBufferTest : public ::spccl::testing::ClientTest {
 protected:
  CudaBufferTest() {
    ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY, 1);
    EXPECT_TRUE(memory_.Look().ok());
    session_ = *Process::Get().LiveSession();
  }
  absl::StatusOr<std::shared_ptr<CudaBuffer>> Get() {
    const auto found = memory_.Find(data_);
    SPCCL_CHECK(found.ok() && *found != nullptr);
    return buffers_.Get(session_, **found, reinterpret_cast<uint64_t>(data_), kBytes);
  }

  const spccl::testing::GpuProgram gpu_{spccl::testing::LoadFakeDriver()};
  void* const data_ = gpu_.Allocate(kBytes);
  CudaMemory memory_;
  std::shared_ptr<Session> session_;
  CudaBuffers buffers_{&memory_};
};

// As in a child that was forked when the driver was in use: there is the host's memory.
TEST_F(CudaBufferTest, ADriverThatIsOutOfOrderIsNotUsed) {
  CudaMemory memory;
  spccl::testing::Fake().Fail("cuInit", 1, cuda::kErrorNotInitialized);
  EXPECT_THAT(memory.Look(), IsOk());
  EXPECT_EQ(memory.driver(), nullptr);
  EXPECT_THAT(memory.Look(), IsOk());
  EXPECT_NE(memory.driver(), nullptr);
}

TEST_F(CudaBufferTest, WhatWasNotAnsweredInTimeIsAskedAgain) {
  daemon_.HoldReplies(RequestType::kRegisterCuda, true);
  buffers_.SetTimeout(1'000'000);
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(Get().status(),
                FailsWith(absl::StatusCode::kUnavailable, HasSubstr("has not answered")));
  }
  EXPECT_TRUE(daemon_.AwaitRequests(RequestType::kRegisterCuda, 2));
  daemon_.HoldReplies(RequestType::kRegisterCuda, false);
  buffers_.SetTimeout(Session::kReplyTimeoutNs);
  EXPECT_THAT(Get(), IsOk());
  EXPECT_THAT(Get(), IsOk());
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 3u);
}

TEST_F(CudaBufferTest, WhatTheDaemonRefusesIsNotAskedAgain) {
  for (const shm::Result result : {shm::Result::kInvalidUsage, shm::Result::kSystemError}) {
    daemon_.Refuse(RequestType::kRegisterCuda, result, "its GPU has failed");
    const size_t before = daemon_.Requests(RequestType::kRegisterCuda);
    CudaBuffers buffers(&memory_);
    const auto found = memory_.Find(data_);
    ASSERT_THAT(found, IsOk());
    for (int round = 0; round < 2; ++round) {
      EXPECT_THAT(
          buffers.Get(session_, **found, reinterpret_cast<uint64_t>(data_), kBytes).status(),
          FailsWith(absl::StatusCode::kUnimplemented, HasSubstr("its GPU has failed")));
    }
    EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), before + 1);
  }
}

TEST_F(CudaBufferTest, ADeadSessionIsNoRefusal) {
  daemon_.Kill();
  EXPECT_THAT(Get().status(), FailsWith(absl::StatusCode::kUnavailable, HasSubstr("daemon")));
}

}  // namespace
}  // namespace spccl::client
