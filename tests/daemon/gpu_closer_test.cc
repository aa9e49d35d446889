#include "daemon/gpu_closer.h"

#include <atomic>
#include <future>
#include <memory>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::daemon {
namespace {

class GpuCloserTest : public ::testing::Test {
 protected:
  GpuCloserTest() {
    auto gpus = runtime::Gpus::Open(
        {.driver_library = SPCCL_FAKE_CUDA_LIBRARY, .codec_library = SPCCL_FAKE_DEVICE_LIBRARY});
    SPCCL_CHECK(gpus.ok() && (*gpus)->count() >= 2);
    gpus_ = *std::move(gpus);
  }

  // Returns once it has been called.
  static void Close(GpuCloser& closer, runtime::Gpu& gpu) {
    std::promise<void> closed;
    closer.Defer(gpu, [&closed] { closed.set_value(); });
    closed.get_future().wait();
  }

  std::unique_ptr<runtime::Gpus> gpus_;
};

TEST_F(GpuCloserTest, WaitsForRanksThatAGpuWaitsForAndLetsOthersPass) {
  GpuCloser closer;
  runtime::Gpu& waits = gpus_->at(0);
  std::atomic<bool> is_waited_for{true};
  std::promise<bool> closed;
  waits.CountRankWaits(1);
  closer.Defer(waits, [&] { closed.set_value(!is_waited_for.load()); });
  Close(closer, gpus_->at(1));
  is_waited_for = false;
  waits.CountRankWaits(-1);
  EXPECT_TRUE(closed.get_future().get());
}

TEST_F(GpuCloserTest, AGpuThatHasFailedIsNotWaitedFor) {
  GpuCloser closer;
  gpus_->at(0).CountRankWaits(1);
  gpus_->at(0).Fail(absl::InternalError("in a test"));
  Close(closer, gpus_->at(0));
}

TEST_F(GpuCloserTest, TheEndWaitsForNoRank) {
  int closed = 0;
  gpus_->at(0).CountRankWaits(1);
  {
    GpuCloser closer;
    for (int i = 0; i < 3; ++i) closer.Defer(gpus_->at(0), [&closed] { ++closed; });
  }
  EXPECT_EQ(closed, 3);
  gpus_->at(0).CountRankWaits(-1);
}

}  // namespace
}  // namespace spccl::daemon
