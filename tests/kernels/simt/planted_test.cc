// Kernels with a bug planted in them: the fibre lane, with the sanitizer of the build, must find
// it, and find nothing where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <vector>

#include "kernels/simt/fibre_machine.h"
#include "tests/kernels/host/elements.h"

#if defined(__SANITIZE_THREAD__)
namespace {
std::atomic<int> reports{0};
}  // namespace
// Called by ThreadSanitizer for each race; here races are counted, so they do not fail the process.
extern "C" __attribute__((visibility("default"))) void __tsan_on_report(const void*) {
  ++reports;
}
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "exitcode=0";
}
#endif

namespace spccl::simt {
namespace {

int TakeReports() {
#if defined(__SANITIZE_THREAD__)
  return reports.exchange(0);
#else
  return 0;
#endif
}

constexpr uint32_t kThreads = 256;
struct CompactShared {
  uint32_t warp_count[kThreads / kWarpLanes];
};

// Writes the places of the nonzeros of `in`, in order, to `out`.
template <SimtLane L>
void Compact(L& lane, CompactShared& shared, const float* in, uint32_t* out, bool with_barrier) {
  const bool keep = in[lane.Thread()] != 0;
  const uint32_t votes = lane.Ballot(kAllLanes, keep);
  if (lane.Lane() == 0) shared.warp_count[lane.Warp()] = std::popcount(votes);
  if (with_barrier) lane.SyncThreads();
  uint32_t base = 0;
  for (uint32_t w = 0; w < lane.Warp(); ++w) base += shared.warp_count[w] % kThreads;
  const uint32_t below = std::popcount(votes & ((1u << lane.Lane()) - 1));
  if (keep && base + below < kThreads) out[base + below] = lane.Thread();
}

struct Input {
  std::vector<float> values = std::vector<float>(kThreads);
  std::vector<uint32_t> places;
  explicit Input(uint64_t seed) {
    std::mt19937_64 rng(seed);
    for (uint32_t i = 0; i < kThreads; ++i) {
      if (rng() % 3 != 0) continue;
      values[i] = 1;
      places.push_back(i);
    }
  }
};

// How many of 10 schedules gave a wrong result.
int WrongResults(bool with_barrier) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Input input(seed);
    std::vector<uint32_t> out(kThreads);
    FibreMachine machine({.seed = seed});
    EXPECT_TRUE(machine
                    .Run({1, kThreads, sizeof(CompactShared)},
                         [&](FibreLane& lane, void* shared) {
                           Compact(lane, *static_cast<CompactShared*>(shared), input.values.data(),
                                   out.data(), with_barrier);
                         })
                    .ok());
    out.resize(input.places.size());
    wrong += out != input.places;
  }
  return wrong;
}

TEST(PlantedTest, NoBug) {
  TakeReports();
  EXPECT_EQ(WrongResults(true), 0);
  EXPECT_EQ(TakeReports(), 0);
}

TEST(PlantedTest, ABarrierRemoved) {
  TakeReports();
  EXPECT_GT(WrongResults(false), 0);
#if defined(__SANITIZE_THREAD__)
  EXPECT_GT(TakeReports(), 0);
#endif
}

void WriteOneShort(uint64_t seed, size_t guard, bool& intact) {
  const Input input(seed);
  Buffer out((input.places.size() - 1) * sizeof(uint32_t), 0, guard);
  FibreMachine machine({.seed = seed});
  EXPECT_TRUE(machine
                  .Run({1, kThreads, sizeof(CompactShared)},
                       [&](FibreLane& lane, void* shared) {
                         Compact(lane, *static_cast<CompactShared*>(shared), input.values.data(),
                                 reinterpret_cast<uint32_t*>(out.data()), true);
                       })
                  .ok());
  intact = out.Intact();
}

TEST(PlantedTest, AnOutputOneShort) {
  bool intact = true;
  WriteOneShort(3, 64, intact);  // into the guard, which is ours
  EXPECT_FALSE(intact);
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_DEATH(WriteOneShort(3, 0, intact), "heap-buffer-overflow");
#endif
}

TEST(PlantedTest, SharedMemoryOneShort) {
#if defined(__SANITIZE_ADDRESS__)
  FibreMachine machine({.seed = 1});
  EXPECT_DEATH((void)machine.Run({1, 32, 31 * sizeof(uint32_t)},
                                 [](FibreLane& lane, void* shared) {
                                   static_cast<uint32_t*>(shared)[lane.Lane()] = 1;
                                 }),
               "heap-buffer-overflow");
#else
  GTEST_SKIP() << "AddressSanitizer finds it";
#endif
}

// Block 0 hands a value to block 1 by a flag; returns how many races were told of.
int HandOver(bool ordered, uint64_t seed) {
  uint64_t value = 0;
  uint32_t flag = 0;
  uint64_t got = 0;
  FibreMachine machine({.seed = seed, .resident_blocks = 2});
  EXPECT_TRUE(machine
                  .Run({2, 32, 0},
                       [&](FibreLane& lane, void*) {
                         if (lane.Lane() != 0) return;
                         if (lane.Block() == 0) {
                           value = 7;
                           ordered ? lane.StoreRelease(&flag, 1) : lane.StoreRelaxed(&flag, 1);
                           return;
                         }
                         while (ordered ? lane.LoadAcquire(&flag) == 0
                                        : lane.LoadRelaxed(&flag) == 0) {
                           lane.Pause();
                         }
                         got = value;
                       })
                  .ok());
  EXPECT_EQ(got, 7u);
  return TakeReports();
}

TEST(PlantedTest, ARelaxedFlag) {
  TakeReports();
  for (uint64_t seed = 0; seed < 5; ++seed) EXPECT_EQ(HandOver(true, seed), 0);
#if defined(__SANITIZE_THREAD__)
  int found = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) found += HandOver(false, seed);
  EXPECT_GT(found, 0);
#else
  GTEST_SKIP() << "ThreadSanitizer finds it";
#endif
}

}  // namespace
}  // namespace spccl::simt
