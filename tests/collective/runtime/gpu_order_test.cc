#include "collective/runtime/gpu_order.h"

#include "gtest/gtest.h"

namespace spccl::runtime {
namespace {

TEST(GpuOrderTest, DoneIsWrittenOnce) {
  std::atomic<uint32_t> done{0};
  GpuOrder order;
  order.done = &done;
  order.value = 1;
  order.resets = true;
  order.WriteDone();
  EXPECT_EQ(done.load(), 1u);
  done = 0;  // by the rank's stream, for the next replay
  order.WriteDone();
  EXPECT_EQ(done.load(), 0u);
}

}  // namespace
}  // namespace spccl::runtime
