#include "bench/perf/gpu.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::bench {
namespace {

using ::testing::HasSubstr;

TEST(DeviceWishTest, IsHostOrCuda) {
  EXPECT_FALSE(DeviceWish::Parse("host")->cuda);
  EXPECT_EQ(DeviceWish::Parse("cuda")->ordinal, -1);
  EXPECT_TRUE(DeviceWish::Parse("cuda:12")->cuda);
  EXPECT_EQ(DeviceWish::Parse("cuda:12")->ordinal, 12);
  for (const char* text :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999999999"}) {
    const auto wish = DeviceWish::Parse(text);
    ASSERT_FALSE(wish.ok()) << text;
    EXPECT_THAT(std::string(wish.status().message()), HasSubstr("expected host, cuda or cuda:N"));
  }
}

std::unique_ptr<Gpu> Open(const DeviceWish& wish, int rank) {
  auto gpu = Gpu::Open(wish, rank, SPCCL_FAKE_CUDA_LIBRARY);
  EXPECT_TRUE(gpu.ok()) << gpu.status();
  return gpu.ok() ? *std::move(gpu) : nullptr;
}

TEST(GpuTest, RanksTakeTheNextOneRoundAndRound) {
  // The fake has two.
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(Open({.cuda = true}, rank)->ordinal(), rank % 2);
    EXPECT_EQ(Open({.cuda = true, .ordinal = 1}, rank)->ordinal(), 1);
  }
  EXPECT_FALSE(Open({.cuda = true}, 0)->name().empty());
}

TEST(GpuTest, SaysWhatIsMissing) {
  const auto library = Gpu::Open({.cuda = true}, 0, "/nowhere/libcuda.so.1");
  EXPECT_THAT(library.status().ToString(), HasSubstr("--device cuda: there is no CUDA driver"));
  EXPECT_THAT(library.status().ToString(), HasSubstr("/nowhere/libcuda.so.1"));
  EXPECT_THAT(library.status().ToString(),
              HasSubstr("; install NVIDIA's driver, 580 or later, or "));
  EXPECT_THAT(library.status().ToString(), HasSubstr("--cuda-library"));
  const auto gpu = Gpu::Open({.cuda = true, .ordinal = 7}, 0, SPCCL_FAKE_CUDA_LIBRARY);
  EXPECT_THAT(gpu.status().ToString(), HasSubstr("there is no GPU 7, only 2"));
}

TEST(GpuBufferTest, GoesThereAndBack) {
  constexpr uint64_t kBytes = (1 << 20) + 3;
  const std::unique_ptr<Gpu> gpu = Open({.cuda = true}, 1);
  auto buffer = GpuBuffer::Create(gpu.get(), kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::byte* const host = (*buffer)->host();
  for (uint64_t i = 0; i < kBytes; ++i) host[i] = static_cast<std::byte>(i * 7 % 251);
  ASSERT_TRUE((*buffer)->Upload().ok());
  std::memset(host, 0, kBytes);
  ASSERT_TRUE((*buffer)->Download().ok());
  for (uint64_t i = 0; i < kBytes; ++i) ASSERT_EQ(host[i], static_cast<std::byte>(i * 7 % 251));
}

TEST(GpuGraphTest, DoesAgainWhatWasCaptured) {
  constexpr uint64_t kBytes = 4096;
  const std::unique_ptr<Gpu> gpu = Open({.cuda = true}, 0);
  const auto from = GpuBuffer::Create(gpu.get(), kBytes), to = GpuBuffer::Create(gpu.get(), kBytes);
  ASSERT_TRUE(from.ok() && to.ok());
  const auto pointer = [](const GpuBuffer& buffer) {
    return reinterpret_cast<uintptr_t>(buffer.device());
  };
  const auto graph = GpuGraph::Capture(gpu.get(), [&] {
    return gpu->driver().ToStatus(
        gpu->driver().MemcpyAsync(pointer(**to), pointer(**from), kBytes, gpu->stream()), "copy");
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const int value : {1, 2, 3}) {
    std::memset((*from)->host(), value, kBytes);
    ASSERT_TRUE((*from)->Upload().ok());
    ASSERT_TRUE((*graph)->Launch().ok());
    ASSERT_TRUE((*to)->Download().ok());
    EXPECT_EQ(std::memcmp((*to)->host(), (*from)->host(), kBytes), 0) << value;
  }
}

TEST(GpuGraphTest, LeavesTheStreamUsableWhereItCannotBeMade) {
  const std::unique_ptr<Gpu> gpu = Open({.cuda = true}, 0);
  const auto graph =
      GpuGraph::Capture(gpu.get(), [] { return absl::ResourceExhaustedError("too many"); });
  EXPECT_EQ(graph.status(), absl::ResourceExhaustedError("too many"));
  const auto buffer = GpuBuffer::Create(gpu.get(), 64);
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE((*buffer)->Upload().ok());
}

TEST(GpuBufferTest, NothingIsLeftBehind) {
  const auto held = [] {
    spcclFakeHoldings holdings = {};
    testing::Fake().Count(&holdings);
    return holdings;
  };
  const auto before = held();
  {
    const std::unique_ptr<Gpu> gpu = Open({.cuda = true}, 0);
    ASSERT_TRUE(GpuBuffer::Create(gpu.get(), 4096).ok());
    ASSERT_TRUE(GpuGraph::Capture(gpu.get(), [] { return absl::OkStatus(); }).ok());
    // More than there is: told with what was asked for.
    const auto large = GpuBuffer::Create(gpu.get(), uint64_t{3} << 30);
    EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(large.status().ToString(), HasSubstr("cuMemAlloc of 3221225472 bytes"));
  }
  EXPECT_EQ(held().allocations, before.allocations);
  EXPECT_EQ(held().streams, before.streams);
  EXPECT_EQ(held().graphs, before.graphs);
}

}  // namespace
}  // namespace spccl::bench
