// The fibre lane itself: what works, and that it finds what is planted.
#include "kernels/simt/fibre_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <vector>

#include "tests/kernels/host/elements.h"

namespace spccl::simt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Diagnosis(FibreMachine& machine, uint32_t threads, const FibreMachine::Body& body,
                      uint32_t blocks = 1) {
  return std::string(machine.Run({blocks, threads, 0}, body).message());
}

TEST(FibreMachineTest, EveryLaneOfEveryBlockRunsOnce) {
  FibreMachine machine({.seed = TestSeed()});
  std::vector<int> runs(5 * 64);
  ASSERT_TRUE(machine
                  .Run({5, 64, 0},
                       [&](FibreLane& lane, void*) {
                         ASSERT_EQ(lane.Blocks(), 5u);
                         ASSERT_EQ(lane.Threads(), 64u);
                         ASSERT_EQ(lane.Thread(), lane.Warp() * 32 + lane.Lane());
                         ++runs[lane.Block() * 64 + lane.Thread()];
                       })
                  .ok());
  EXPECT_THAT(runs, testing::Each(1));
}

TEST(FibreMachineTest, WarpCallsGiveWhatAGpuGives) {
  FibreMachine machine({.seed = TestSeed()});
  ASSERT_TRUE(machine
                  .Run({1, 64, 0},
                       [](FibreLane& lane, void*) {
                         const uint32_t own = lane.Lane();
                         EXPECT_EQ(lane.Ballot(kAllLanes, own % 3 == 0), 0x49249249u);
                         EXPECT_EQ(lane.Shuffle(kAllLanes, own * 10, 7u), 70u);
                         EXPECT_EQ(lane.ShuffleUp(kAllLanes, own, 4u), own < 4 ? own : own - 4);
                         EXPECT_EQ(lane.ShuffleDown(kAllLanes, own, 4u), own >= 28 ? own : own + 4);
                         EXPECT_EQ(lane.ShuffleXor(kAllLanes, uint64_t{own} << 40, 1u),
                                   uint64_t{own ^ 1} << 40);
                         const uint32_t half =
                             own < 16 ? 0xFFFFu : 0xFFFF0000u;  // two groups by themselves
                         EXPECT_EQ(lane.Ballot(half, true), half);
                       })
                  .ok());
}

TEST(FibreMachineTest, SeedsRepeatSchedulesAndGiveMany) {
  const auto order_of = [](uint64_t seed) {
    FibreMachine machine({.seed = seed});
    std::vector<uint32_t> order(96);
    uint32_t next = 0;
    EXPECT_TRUE(machine
                    .Run({3, 32, 0},
                         [&](FibreLane& lane, void*) {
                           lane.SyncWarp(kAllLanes);
                           order[lane.FetchAdd(&next, 1)] = lane.Block() * 32 + lane.Thread();
                         })
                    .ok());
    return order;
  };
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    orders.insert(order_of(seed));
    EXPECT_EQ(order_of(seed), order_of(seed));
  }
  EXPECT_EQ(orders.size(), 20u);
}

// A block that waits for another one, whichever started first.
TEST(FibreMachineTest, BlocksAreInFlightTogether) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    FibreMachine machine({.seed = seed, .resident_blocks = 2});
    uint32_t flag = 0;
    EXPECT_TRUE(machine
                    .Run({2, 32, 0},
                         [&](FibreLane& lane, void*) {
                           if (lane.Block() == 1) lane.StoreRelease(&flag, 1);
                           while (lane.LoadAcquire(&flag) == 0) lane.Pause();
                         })
                    .ok());
  }
}

TEST(FibreMachineTest, SharedMemoryIsABlocksOwnAndStartsAsNoise) {
  FibreMachine machine({.seed = TestSeed()});
  uint32_t bits = 0;
  ASSERT_TRUE(machine
                  .Run({4, 32, 32 * sizeof(uint32_t)},
                       [&](FibreLane& lane, void* shared) {
                         auto* words = static_cast<uint32_t*>(shared);
                         lane.FetchOr(&bits, words[lane.Lane()]);
                         lane.SyncThreads();
                         words[lane.Lane()] = lane.Block();
                         lane.SyncThreads();
                         EXPECT_EQ(words[31 - lane.Lane()], lane.Block());
                       })
                  .ok());
  EXPECT_NE(bits, 0u);
}

TEST(FibreMachineTest, AShuffleFromOutsideTheMaskGivesNoise) {
  FibreMachine machine({.seed = TestSeed()});
  std::set<uint64_t> seen;
  for (int i = 0; i < 8; ++i) {
    uint64_t got[16];
    ASSERT_TRUE(machine
                    .Run({1, 32, 0},
                         [&](FibreLane& lane, void*) {
                           if (lane.Lane() >= 16) return;
                           got[lane.Lane()] = lane.Shuffle(0xFFFFu, uint64_t{5}, 20u);
                           EXPECT_EQ(lane.Shuffle(0xFFFFu, uint64_t{5}, 3u), 5u);
                         })
                    .ok());
    seen.insert(got, got + 16);
  }
  EXPECT_GT(seen.size(), 16u);
}

// What it says of lanes that do not come together: which, where, with which mask.

TEST(DiagnosisTest, ASplitWarp) {
  FibreMachine machine({.seed = TestSeed()});
  const std::string said = Diagnosis(machine, 64, [](FibreLane& lane, void*) {
    if (lane.Lane() < 16) {
      lane.Ballot(kAllLanes, true);
    } else {
      lane.SyncWarp(kAllLanes);
    }
  });
  EXPECT_THAT(said, AllOf(HasSubstr("diverged"), HasSubstr("Ballot(mask ffffffff)"),
                          HasSubstr("SyncWarp(mask ffffffff)"), HasSubstr("_test.cc:")));
}

TEST(DiagnosisTest, TwoPlacesOfTheSameCall) {
  FibreMachine machine({.seed = TestSeed()});
  const std::string said = Diagnosis(machine, 32, [](FibreLane& lane, void*) {
    if (lane.Lane() == 5) {
      lane.Ballot(kAllLanes, true);
    } else {
      lane.Ballot(kAllLanes, true);
    }
  });
  EXPECT_THAT(said, HasSubstr("diverged"));
}

TEST(DiagnosisTest, ALaneThatReturnedEarly) {
  FibreMachine machine({.seed = TestSeed()});
  const std::string said = Diagnosis(machine, 64, [](FibreLane& lane, void*) {
    if (lane.Thread() == 37) return;
    lane.SyncThreads();
  });
  EXPECT_THAT(said, AllOf(HasSubstr("wait for ever"), HasSubstr("block 0 lanes 37 have returned"),
                          HasSubstr("lanes 0-36,38-63 wait in SyncThreads()")));
}

TEST(DiagnosisTest, TwoBarriersAtOnce) {
  FibreMachine machine({.seed = TestSeed()});
  const std::string said = Diagnosis(machine, 64, [](FibreLane& lane, void*) {
    if (lane.Warp() == 0) {
      lane.SyncThreads();
    } else {
      lane.SyncThreads();
    }
  });
  EXPECT_THAT(said, HasSubstr("different barriers"));
}

TEST(DiagnosisTest, ALaneOutsideItsOwnMask) {
  FibreMachine machine({.seed = TestSeed()});
  const std::string said =
      Diagnosis(machine, 32, [](FibreLane& lane, void*) { lane.Ballot(kAllLanes << 1, true); });
  EXPECT_THAT(said, HasSubstr("not in its own mask"));
}

TEST(DiagnosisTest, AFlagThatNobodySets) {
  FibreMachine machine({.seed = TestSeed()});
  uint32_t flag = 0;
  const std::string said = Diagnosis(
      machine, 32,
      [&](FibreLane& lane, void*) {
        if (lane.Block() == 0) return;
        while (lane.LoadAcquire(&flag) == 0) lane.Pause();
      },
      2);
  EXPECT_THAT(said, AllOf(HasSubstr("in a loop"), HasSubstr("block 1"), HasSubstr("Pause() at")));
}

TEST(DiagnosisTest, AMisalignedVector) {
  FibreMachine machine({.seed = TestSeed()});
  alignas(16) uint8_t bytes[64] = {};
  const std::string said = Diagnosis(machine, 32, [&](FibreLane& lane, void*) {
    lane.Load16(bytes + (lane.Lane() == 9 ? 8 : 16));
  });
  EXPECT_THAT(said, AllOf(HasSubstr("not aligned"), HasSubstr("lane 9")));
}

TEST(DiagnosisTest, TheMachineGoesOnAfterwards) {
  FibreMachine machine({.seed = TestSeed()});
  EXPECT_NE(Diagnosis(machine, 32,
                      [](FibreLane& lane, void*) {
                        if (lane.Lane() != 0) lane.SyncWarp(kAllLanes);
                      }),
            "");
  EXPECT_EQ(Diagnosis(machine, 64, [](FibreLane& lane, void*) { lane.SyncThreads(); }), "");
}

TEST(FibreMachineTest, BlocksAreWholeWarps) {
  FibreMachine machine({.seed = TestSeed()});
  EXPECT_EQ(machine.Run({1, 48, 0}, [](FibreLane&, void*) {}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace spccl::simt
