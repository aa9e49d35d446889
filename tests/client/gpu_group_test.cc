// One thread that uses several ranks on GPU memory; default streams, and buffers, of several GPUs.
#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gtest/gtest.h"
#include "proto/shm/order.h"
#include "tests/client/gpu_rank_world.h"

namespace spccl::testing {
namespace {

class GpuGroupTest : public GpuEndToEndTest {};

INSTANTIATE_TEST_SUITE_P(Ways, GpuGroupTest, ::testing::Values(Way::kHandedOver, Way::kStaged),
                         NameOfWay);

constexpr size_t kCount = 1000;

// Two ranks of this thread, each with its buffers; rank r sends r + 1.
struct TwoRanks {
  explicit TwoRanks(const GpuProgram& program) : gpu(program) {
    const cuda::Stream stream = gpu.NewStream();
    SPCCL_CHECK(spcclCommInitAll(comms, 2, nullptr) == spcclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      send[rank] = gpu.Allocate(kCount * sizeof(float));
      recv[rank] = gpu.Allocate(kCount * sizeof(float));
      gpu.Upload(Filled(kCount, static_cast<float>(rank + 1)), send[rank], stream);
    }
  }
  spcclResult_t Sum(int rank, cuda::Stream stream) const {
    return spcclAllReduce(send[rank], recv[rank], kCount, spcclFloat32, spcclSum, comms[rank],
                          AsStream(stream));
  }
  bool HasSum(int rank, cuda::Stream stream) const {
    return gpu.Download<float>(recv[rank], kCount, stream) == Filled(kCount, 3);
  }
  spcclResult_t Destroy() const {
    const spcclResult_t first = spcclCommDestroy(comms[0]), second = spcclCommDestroy(comms[1]);
    return first != spcclSuccess ? first : second;
  }

  const GpuProgram& gpu;
  spcclComm_t comms[2] = {};
  void *send[2] = {}, *recv[2] = {};
};

int SumOnOneStream(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const TwoRanks ranks(gpu);
  const cuda::Stream stream = gpu.NewStream();
  for (int round = 0; round < 3; ++round) {
    MUST(spcclGroupStart() == spcclSuccess);
    for (int rank = 0; rank < 2; ++rank) MUST(ranks.Sum(rank, stream) == spcclSuccess);
    MUST(spcclGroupEnd() == spcclSuccess);
    for (int rank = 0; rank < 2; ++rank) MUST(ranks.HasSum(rank, stream));
  }
  MUST(ranks.Destroy() == spcclSuccess);
  return 0;
}

TEST_P(GpuGroupTest, RanksOfOneThreadMayShareAStream) {
  EXPECT_TRUE(Run(1, SumOnOneStream));
}

// More than a session has slots for, all of one rank before the first of the other.
int SumManyOfOneRankFirst(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const TwoRanks ranks(gpu);
  const cuda::Stream streams[2] = {gpu.NewStream(), gpu.NewStream()};
  MUST(spcclGroupStart() == spcclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    for (int call = 0; call < 300; ++call) MUST(ranks.Sum(rank, streams[rank]) == spcclSuccess);
  }
  MUST(spcclGroupEnd() == spcclSuccess);
  for (int rank = 0; rank < 2; ++rank) MUST(ranks.HasSum(rank, streams[rank]));
  MUST(ranks.Destroy() == spcclSuccess);
  return 0;
}

TEST_P(GpuGroupTest, ManyCallsOfOneRankLeaveTheOtherItsPlace) {
  EXPECT_TRUE(Run(1, SumManyOfOneRankFirst));
}

// Ranks that have called as often as they may wait for the last of this thread's, and that is in a
// group with them.
int SumWhereAllButOneAreAhead(const RankWorld& world, const Report& report, int count,
                              bool default_streams) {
  const GpuProgram gpu(LoadFakeDriver());
  std::vector<spcclComm_t> comms(static_cast<size_t>(count));
  MUST(spcclCommInitAll(comms.data(), count, nullptr) == spcclSuccess);
  const cuda::Stream shared = default_streams ? nullptr : gpu.NewStream();
  std::vector<cuda::Stream> streams;
  std::vector<void*> own, grouped;  // buffers, of the calls on each stream
  for (int rank = 0; rank < count; ++rank) {
    streams.push_back(gpu.NewStream());
    own.push_back(gpu.Allocate(kCount * sizeof(float)));
    grouped.push_back(gpu.Allocate(kCount * sizeof(float)));
    gpu.Upload(Filled(kCount, 1), own.back(), streams.back());
    gpu.Upload(Filled(kCount, 2), grouped.back(), shared);
  }
  const auto call = [&](int rank, void* data, cuda::Stream stream) {
    return spcclAllReduce(data, data, kCount, spcclFloat32, spcclMax, comms[rank],
                          AsStream(stream));
  };
  const int share =
      static_cast<int>(shm::kEagerSlots) / (count + 1) - 1;  // the world's is one, too
  for (int rank = 1; rank < count; ++rank) {
    for (int i = 0; i < share; ++i) MUST(call(rank, own[rank], streams[rank]) == spcclSuccess);
  }
  MUST(spcclGroupStart() == spcclSuccess);
  for (int rank = 0; rank < count; ++rank) MUST(call(rank, grouped[rank], shared) == spcclSuccess);
  MUST(spcclGroupEnd() == spcclSuccess);
  for (int i = 0; i < share; ++i) MUST(call(0, own[0], streams[0]) == spcclSuccess);
  for (int rank = 0; rank < count; ++rank) {
    // The twos of the last's call in the group have come to all.
    MUST(gpu.Download<float>(own[rank], kCount, streams[rank]) == Filled(kCount, 2));
    MUST(gpu.Download<float>(grouped[rank], kCount, shared) == Filled(kCount, 2));
    MUST(spcclCommDestroy(comms[rank]) == spcclSuccess);
  }
  return 0;
}

TEST_P(GpuGroupTest, RanksThatAreAheadHoldBackNoneOfTheirGroup) {
  for (const int count : {2, 4}) {
    for (const bool default_streams : {false, true}) {
      EXPECT_TRUE(Run(1,
                      [=](const RankWorld& world, const Report& report) {
                        return SumWhereAllButOneAreAhead(world, report, count, default_streams);
                      }))
          << count << " ranks" << (default_streams ? " on the default stream" : "");
    }
  }
}

// On the stream, too, the calls of threads must be in the communicator's order.
int SumInThreads(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const cuda::Stream stream = gpu.NewStream();
  std::vector<void*> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.push_back(gpu.Allocate(kCount * sizeof(float)));
    gpu.Upload(Filled(kCount, 5), buffers.back(), stream);
  }
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (void* const buffer : buffers) {
    threads.emplace_back([&, buffer] {
      for (int call = 0; call < 50; ++call) {
        failed += spcclAllReduce(buffer, buffer, kCount, spcclFloat32, spcclSum, world.comm,
                                 AsStream(stream)) != spcclSuccess;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MUST(failed == 0);
  for (void* const buffer : buffers) {
    MUST(gpu.Download<float>(buffer, kCount, stream) == Filled(kCount, 5));
  }
  return 0;
}

TEST_P(GpuGroupTest, ThreadsMayCallOnOneStream) {
  EXPECT_TRUE(Run(1, SumInThreads));
}

void AwaitGate(void* data) {
  static_cast<std::promise<void>*>(data)->get_future().wait();
}

// The call is made, or the group ended, while another GPU is the thread's.
int SumOnADefaultStream(const RankWorld& world, const Report& report) {
  const auto driver = LoadFakeDriver();
  const GpuProgram gpu(driver, 0);
  void* const send = gpu.Allocate(kCount);
  void* const recv = gpu.Allocate(kCount);
  std::promise<void> gate;
  gpu.Must(driver->LaunchHostFunc(nullptr, AwaitGate, &gate));
  gpu.Must(driver->MemsetD8Async(reinterpret_cast<uint64_t>(send), 7, kCount, nullptr));
  const GpuProgram other(driver, 1);
  MUST(spcclAllReduce(send, recv, kCount, spcclUint8, spcclSum, world.comm, nullptr) ==
       spcclSuccess);
  other.Synchronize(nullptr);  // on whose default stream nothing is
  gate.set_value();
  gpu.Must(driver->CtxSetCurrent(gpu.context()));
  MUST(gpu.Download<uint8_t>(recv, kCount, nullptr) == std::vector<uint8_t>(kCount, 7));
  return 0;
}

TEST_P(GpuGroupTest, ADefaultStreamIsThatOfTheBuffersGpu) {
  EXPECT_TRUE(Run(1, SumOnADefaultStream));
}

// Each rank sends from one GPU and receives on the other, on a stream of its own and on its
// thread's.
int SumFromGpuToGpu(const RankWorld& world, const Report& report) {
  const auto driver = LoadFakeDriver();
  const GpuProgram from(driver, world.rank);
  void* const send = from.Allocate(kCount * sizeof(float));
  from.Upload(Filled(kCount, static_cast<float>(world.rank + 1)), send, from.NewStream());
  const GpuProgram to(driver, 1 - world.rank);
  void* const recv = to.Allocate(kCount * sizeof(float));
  for (const cuda::Stream stream : {to.NewStream(), cuda::kStreamPerThread, cuda::Stream()}) {
    to.Upload(Filled(kCount, 0), recv, stream);
    MUST(spcclAllReduce(send, recv, kCount, spcclFloat32, spcclSum, world.comm, AsStream(stream)) ==
         spcclSuccess);
    MUST(to.Download<float>(recv, kCount, stream) == Filled(kCount, 3));
  }
  return 0;
}

TEST_P(GpuGroupTest, TheBuffersOfACallMayLieOnDifferentGpus) {
  EXPECT_TRUE(Run(2, SumFromGpuToGpu));
}

}  // namespace
}  // namespace spccl::testing
