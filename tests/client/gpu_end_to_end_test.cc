// The library and the real daemon on GPU memory of the fake CUDA: ranks as processes.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/gpu_rank_world.h"
#include "tests/daemon/metrics/http_client.h"

namespace spccl::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Ways, GpuEndToEndTest, ::testing::Values(Way::kHandedOver, Way::kStaged),
                         NameOfWay);

float SumOfRanks(const RankWorld& world) {
  return static_cast<float>(world.ranks * (world.ranks + 1)) / 2;
}

bool IsHealthy(const RankWorld& world) {
  spcclResult_t health = spcclInternalError;
  return spcclCommGetAsyncError(world.comm, &health) == spcclSuccess && health == spcclSuccess;
}

int SumThrice(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver(), world.rank % 2);
  const cuda::Stream stream = gpu.NewStream();
  constexpr size_t kCount = 100'000;
  void* const send = gpu.Allocate(kCount * sizeof(float));
  void* const recv = gpu.Allocate(kCount * sizeof(float));
  gpu.Upload(Filled(kCount, static_cast<float>(world.rank + 1)), send, stream);
  for (int round = 0; round < 3; ++round) {
    MUST(spcclAllReduce(send, recv, kCount, spcclFloat32, spcclSum, world.comm, AsStream(stream)) ==
         spcclSuccess);
    MUST(gpu.Download<float>(recv, kCount, stream) == Filled(kCount, SumOfRanks(world)));
  }
  MUST(IsHealthy(world));
  return 0;
}

TEST_P(GpuEndToEndTest, SumsOnTwoDevices) {
  EXPECT_TRUE(Run(2, SumThrice));
}

// Nothing waits but the streams: many operations are on their way before the first has ended.
int SumInARow(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const cuda::Stream stream = gpu.NewStream();
  constexpr size_t kCount = 1000;
  constexpr int kRounds = 100;  // more than may be submitted at a time
  void* const data = gpu.Allocate(kCount * sizeof(float));
  gpu.Upload(Filled(kCount, 1), data, stream);
  double expected = 1;
  for (int round = 0; round < kRounds; ++round) {
    // In place: an average stays what it is, a sum grows by the ranks.
    const bool sums = round % 10 == 9;
    MUST(spcclAllReduce(data, data, kCount, spcclFloat32, sums ? spcclSum : spcclAvg, world.comm,
                        AsStream(stream)) == spcclSuccess);
    if (sums) expected *= world.ranks;
  }
  MUST(gpu.Download<float>(data, kCount, stream) == Filled(kCount, static_cast<float>(expected)));
  MUST(IsHealthy(world));
  return 0;
}

TEST_P(GpuEndToEndTest, ManyOperationsInARowOnOneStream) {
  EXPECT_TRUE(Run(2, SumInARow));
}

// Where the buffers begin within their allocation, and other operations than a sum.
int InteriorPointers(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  constexpr size_t kCount = 300, kOffset = 1024;
  auto* const memory = static_cast<std::byte*>(gpu.Allocate(1 << 20));
  void* const send = memory + kOffset;
  void* const recv = memory + 100 * kOffset;
  gpu.Upload(Filled(kCount, static_cast<float>(world.rank + 1)), send, nullptr);
  // The legacy default stream.
  MUST(spcclAllGather(send, recv, kCount, spcclFloat32, world.comm, nullptr) == spcclSuccess);
  const auto gathered = gpu.Download<float>(recv, kCount * world.ranks, nullptr);
  for (int rank = 0; rank < world.ranks; ++rank) {
    MUST(gathered[rank * kCount] == static_cast<float>(rank + 1));
    MUST(gathered[(rank + 1) * kCount - 1] == static_cast<float>(rank + 1));
  }
  MUST(spcclBroadcast(send, recv, kCount, spcclFloat32, 1, world.comm, nullptr) == spcclSuccess);
  MUST(gpu.Download<float>(recv, kCount, nullptr) == Filled(kCount, 2));
  // Nothing is moved, and the streams need not be told apart.
  MUST(spcclAllReduce(nullptr, nullptr, 0, spcclFloat32, spcclSum, world.comm, nullptr) ==
       spcclSuccess);
  MUST(IsHealthy(world));
  return 0;
}

TEST_P(GpuEndToEndTest, InteriorPointersAndTheDefaultStream) {
  EXPECT_TRUE(Run(3, InteriorPointers));
}

// What was freed and what came in its place are two memories, wherever they are.
int ReusedAddresses(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const cuda::Stream stream = gpu.NewStream();
  bool was_reused = false;
  void* before = nullptr;
  for (int round = 0; round < 6; ++round) {
    const size_t count = 50'000 + 1000 * round;
    void* const data = gpu.Allocate(256 << 10);
    was_reused |= data == before;
    before = data;
    gpu.Upload(Filled(count, static_cast<float>(world.rank + round)), data, stream);
    MUST(spcclAllReduce(data, data, count, spcclFloat32, spcclMax, world.comm, AsStream(stream)) ==
         spcclSuccess);
    MUST(gpu.Download<float>(data, count, stream) ==
         Filled(count, static_cast<float>(world.ranks - 1 + round)));
    gpu.Free(data);
  }
  MUST(IsHealthy(world));
  if (!was_reused) report("no address was used again\n");
  return 0;
}

TEST_P(GpuEndToEndTest, AddressesThatAreUsedAgain) {
  EXPECT_TRUE(Run(2, ReusedAddresses));
}

// Pieces in a row, as PyTorch's expandable segments have them.
int MappedPieces(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const cuda::Driver& driver = gpu.driver();
  const cuda::Stream stream = gpu.NewStream();
  cuda::MemAllocationProp prop{};
  prop.type = cuda::kMemAllocationTypePinned;
  prop.requested_handle_types = cuda::kMemHandleTypePosixFileDescriptor;
  prop.location = {.type = cuda::kMemLocationTypeDevice, .id = 0};
  size_t granularity = 0;
  gpu.Must(
      driver.MemGetAllocationGranularity(&granularity, &prop, cuda::kMemAllocGranularityMinimum));
  constexpr int kPieces = 3;
  cuda::DevicePtr base = 0;
  gpu.Must(driver.MemAddressReserve(&base, kPieces * granularity, 0, 0, 0));
  for (int piece = 0; piece < kPieces; ++piece) {
    cuda::AllocationHandle handle;
    gpu.Must(driver.MemCreate(&handle, granularity, &prop, 0));
    gpu.Must(driver.MemMap(base + piece * granularity, granularity, 0, handle, 0));
    gpu.Must(driver.MemRelease(handle));
  }
  const cuda::MemAccessDesc access{.location = prop.location,
                                   .flags = cuda::kMemAccessFlagsProtReadWrite};
  gpu.Must(driver.MemSetAccess(base, kPieces * granularity, &access, 1));
  // From the middle of the first piece to the middle of the last.
  const size_t count = (kPieces - 1) * granularity / sizeof(float);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const data = reinterpret_cast<void*>(base + granularity / 2);
  gpu.Upload(Filled(count, static_cast<float>(world.rank + 1)), data, stream);
  MUST(spcclAllReduce(data, data, count, spcclFloat32, spcclSum, world.comm, AsStream(stream)) ==
       spcclSuccess);
  MUST(gpu.Download<float>(data, count, stream) == Filled(count, SumOfRanks(world)));
  MUST(IsHealthy(world));
  return 0;
}

TEST_P(GpuEndToEndTest, MemoryThatIsMappedPieceByPiece) {
  EXPECT_TRUE(Run(2, MappedPieces));
}

int ReplayThrice(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const cuda::Driver& driver = gpu.driver();
  const cuda::Stream stream = gpu.NewStream();
  constexpr size_t kCount = 5000;
  void* const data = gpu.Allocate(kCount * sizeof(float));
  gpu.Must(driver.StreamBeginCapture(stream, cuda::kStreamCaptureModeGlobal));
  // Two, so that one replay waits for the first before the second.
  for (int i = 0; i < 2; ++i) {
    MUST(spcclAllReduce(data, data, kCount, spcclFloat32, spcclSum, world.comm, AsStream(stream)) ==
         spcclSuccess);
  }
  cuda::Graph graph = nullptr;
  gpu.Must(driver.StreamEndCapture(stream, &graph));
  cuda::GraphExec exec = nullptr;
  gpu.Must(driver.GraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    gpu.Upload(Filled(kCount, static_cast<float>(round + world.rank)), data, stream);
    gpu.Must(driver.GraphLaunch(exec, stream));
    const int once = world.ranks * round + world.ranks * (world.ranks - 1) / 2;
    MUST(gpu.Download<float>(data, kCount, stream) ==
         Filled(kCount, static_cast<float>(once * world.ranks)));
  }
  // And one that is not captured, in between nothing.
  gpu.Upload(Filled(kCount, 1), data, stream);
  MUST(spcclAllReduce(data, data, kCount, spcclFloat32, spcclSum, world.comm, AsStream(stream)) ==
       spcclSuccess);
  MUST(gpu.Download<float>(data, kCount, stream) ==
       Filled(kCount, static_cast<float>(world.ranks)));
  MUST(IsHealthy(world));
  gpu.Must(driver.GraphExecDestroy(exec));
  gpu.Must(driver.GraphDestroy(graph));
  return 0;
}

TEST_P(GpuEndToEndTest, ACapturedGraphIsReplayedThrice) {
  EXPECT_TRUE(Run(2, ReplayThrice));
}

int MixedBuffers(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  std::vector<float> host(100);
  void* const device = gpu.Allocate(400);
  // Known to the library from now on that CUDA is in use.
  void* handle = nullptr;
  MUST(spcclCommRegister(world.comm, device, 400, &handle) == spcclSuccess);
  MUST(spcclAllReduce(host.data(), device, 100, spcclFloat32, spcclSum, world.comm, nullptr) ==
       spcclInvalidUsage);
  MUST(std::string(spcclGetLastError(world.comm)).find("sendbuff is host memory") !=
       std::string::npos);
  MUST(spcclAllReduce(device, host.data(), 100, spcclFloat32, spcclSum, world.comm, nullptr) ==
       spcclInvalidUsage);
  MUST(spcclCommDeregister(world.comm, handle) == spcclSuccess);
  MUST(IsHealthy(world));
  return 0;
}

TEST(GpuMixedTest, BuffersOfBothKindsInOneCallAreRefused) {
  EXPECT_TRUE(RunOnGpus(1, MixedBuffers, FlagsOf(Way::kHandedOver)));
}

int MixedRanks(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  std::vector<float> host(100);
  void* const device = gpu.Allocate(400);
  const cuda::Stream stream = gpu.NewStream();
  if (world.rank == 0) {
    MUST(spcclAllReduce(host.data(), host.data(), 100, spcclFloat32, spcclSum, world.comm,
                        nullptr) == spcclInvalidUsage);
    const std::string text = spcclGetLastError(world.comm);
    MUST(text.find("rank 0") != std::string::npos && text.find("rank 1") != std::string::npos);
  } else {
    MUST(spcclAllReduce(device, device, 100, spcclFloat32, spcclSum, world.comm,
                        AsStream(stream)) == spcclSuccess);
    gpu.Synchronize(stream);  // it goes on
    spcclResult_t health = spcclSuccess;
    MUST(spcclCommGetAsyncError(world.comm, &health) == spcclSuccess);
    MUST(health == spcclInvalidUsage);
  }
  return 0;
}

TEST(GpuMixedTest, RanksOnBothKindsOfMemoryAreBothNamed) {
  EXPECT_TRUE(RunOnGpus(2, MixedRanks, FlagsOf(Way::kHandedOver)));
}

// What the daemon's metrics say; rank 0 asks once all that it asks about has been counted, which it
// has when another operation of the communicator has ended.
double HostPathBytes() {
  const std::string folder = std::getenv("SPCCL_RUNTIME_DIR");
  const std::string answer = daemon::metrics::Get("unix:" + folder + "/metrics.sock", "/metrics");
  const std::string name = "\nspccl_gpu_host_path_bytes_total ";
  const size_t at = answer.find(name);
  return at == std::string::npos ? -1 : std::strtod(answer.c_str() + at + name.size(), nullptr);
}

// `rounds` sums of `mebibytes` each, of which `expected` MiB go over the host, all together.
RankBody SumLarge(size_t mebibytes, int rounds, double expected) {
  return [=](const RankWorld& world, const Report& report) {
    const GpuProgram gpu(LoadFakeDriver(), world.rank % 2);
    const cuda::Stream stream = gpu.NewStream();
    const size_t count = (mebibytes << 20) / sizeof(float);
    void* const send = gpu.Allocate(count * sizeof(float));
    void* const recv = gpu.Allocate(count * sizeof(float));
    std::vector<float> values(count), sums(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(i % 1000 + static_cast<size_t>(world.rank));
      sums[i] = static_cast<float>(i % 1000 * 2 + 1);
    }
    gpu.Upload(values, send, stream);
    for (int round = 0; round < rounds; ++round) {
      MUST(spcclAllReduce(send, recv, count, spcclFloat32, spcclSum, world.comm,
                          AsStream(stream)) == spcclSuccess);
      MUST(gpu.Download<float>(recv, count, stream) == sums);
    }
    MUST(spcclAllReduce(send, recv, 1, spcclFloat32, spcclSum, world.comm, AsStream(stream)) ==
         spcclSuccess);
    gpu.Synchronize(stream);
    MUST(IsHealthy(world));
    if (world.rank == 0) MUST(HostPathBytes() == expected * (1 << 20));
    world.meet();
    return 0;
  };
}

std::vector<std::string> MultipathFlags(const std::string& value) {
  std::vector<std::string> flags = FlagsOf(Way::kHandedOver);
  flags.push_back("--gpu-multipath=" + value);
  return flags;
}

// What might be compressed goes over the GPUs alone until four have not been.
TEST(GpuMultipathTest, AShareGoesOverTheHost) {
  EXPECT_TRUE(RunOnGpus(2, SumLarge(32, 5, 16), MultipathFlags("0.5")));
}

TEST(GpuMultipathTest, NoShareOfASmallOneDoes) {
  EXPECT_TRUE(RunOnGpus(2, SumLarge(8, 5, 0), MultipathFlags("0.5")));
}

// The first ones say how fast the GPUs are, the next one how fast the host is.
TEST(GpuMultipathTest, AfterSomeLargeOnesTheHostIsTried) {
  EXPECT_TRUE(RunOnGpus(2, SumLarge(32, 5, 8), MultipathFlags("auto")));
}

TEST(GpuMultipathTest, OffIsOff) {
  EXPECT_TRUE(RunOnGpus(2, SumLarge(32, 2, 0), MultipathFlags("off")));
}

}  // namespace
}  // namespace spccl::testing
