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
  GpuCloser closer(*gpus_);
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

TEST_F(GpuCloserTest, AClosingThatBlocksHoldsUpNoOtherGpu) {
  std::promise<void> end;
  GpuCloser closer(*gpus_);
  closer.Defer(gpus_->at(0), [&end] { end.get_future().wait(); });
  Close(closer, gpus_->at(1));
  end.set_value();
}

TEST_F(GpuCloserTest, AGpuThatHasFailedIsNotWaitedFor) {
  GpuCloser closer(*gpus_);
  gpus_->at(0).CountRankWaits(1);
  gpus_->at(0).Fail(absl::InternalError("in a test"));
  Close(closer, gpus_->at(0));
}

TEST_F(GpuCloserTest, TheEndWaitsForNoRank) {
  int closed[2] = {};
  for (size_t gpu = 0; gpu < 2; ++gpu) gpus_->at(gpu).CountRankWaits(1);
  {
    GpuCloser closer(*gpus_);
    for (int i = 0; i < 6; ++i) closer.Defer(gpus_->at(i % 2), [&of = closed[i % 2]] { ++of; });
  }
  EXPECT_EQ(closed[0], 3);
  EXPECT_EQ(closed[1], 3);
  for (size_t gpu = 0; gpu < 2; ++gpu) gpus_->at(gpu).CountRankWaits(-1);
}

TEST_F(GpuCloserTest, TheEndReachesAllGpusAtOnce) {
  std::promise<void> other_closed;
  gpus_->at(1).CountRankWaits(1);
  {
    GpuCloser closer(*gpus_);
    closer.Defer(gpus_->at(0), [&other_closed] { other_closed.get_future().wait(); });
    closer.Defer(gpus_->at(1), [&other_closed] { other_closed.set_value(); });
  }
  gpus_->at(1).CountRankWaits(-1);
}

}  // namespace
}  // namespace spccl::daemon
