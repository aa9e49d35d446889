#include "client/pinned_pool.h"

#include <memory>

#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::client {
namespace {

using ::spccl::testing::GpuProgram;
using ::spccl::testing::LoadFakeDriver;

class PinnedPoolTest : public ::testing::Test {
 protected:
  std::shared_ptr<PinnedBuffer> Take() {
    auto buffer = pool_.Take(*driver_, gpu_.context(), {}, 1000);
    SPCCL_CHECK(buffer.ok());
    return *std::move(buffer);
  }

  const std::shared_ptr<const cuda::Driver> driver_ = LoadFakeDriver();
  const GpuProgram gpu_{driver_};
  PinnedPool pool_;
};

TEST_F(PinnedPoolTest, WhatHasEndedIsTakenAgain) {
  std::shared_ptr<PinnedBuffer> buffer = Take();
  const PinnedBuffer* const first = buffer.get();
  EXPECT_NE(Take().get(), first);
  buffer->NoteEnd(/*daemon_let_go=*/true);
  buffer.reset();
  EXPECT_EQ(Take().get(), first);
}

// Its end may be known before its last copy has been recorded.
TEST_F(PinnedPoolTest, WhatHasEndedIsNotTakenWhileItsLauncherHoldsIt) {
  std::shared_ptr<PinnedBuffer> buffer = Take();
  const PinnedBuffer* const first = buffer.get();
  buffer->NoteEnd(/*daemon_let_go=*/true);
  EXPECT_NE(Take().get(), first);
  buffer.reset();
  EXPECT_EQ(Take().get(), first);
}

}  // namespace
}  // namespace spccl::client
