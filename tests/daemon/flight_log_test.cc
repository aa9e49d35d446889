#include "daemon/flight_log.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint64_t> SequencesIn(const FlightLog& log) {
  std::vector<uint64_t> sequences;
  for (const FlightEntry* entry : log.Entries()) sequences.push_back(entry->sequence);
  return sequences;
}

TEST(FlightLogTest, KeepsTheLastInTheirOrder) {
  FlightLog log;
  log.Open(3, 2);
  EXPECT_THAT(SequencesIn(log), IsEmpty());
  for (uint64_t n = 0; n < 2; ++n) log.Next()->sequence = n;
  EXPECT_THAT(SequencesIn(log), ElementsAre(0, 1));
  for (uint64_t n = 2; n < 8; ++n) log.Next()->sequence = n;
  EXPECT_THAT(SequencesIn(log), ElementsAre(5, 6, 7));
}

TEST(FlightLogTest, HasRoomForEveryLocalRankAndNeedsNoMore) {
  FlightLog log;
  log.Open(1, 5);
  FlightEntry* const entry = log.Next();
  EXPECT_EQ(entry->posted_ns.size(), 5U);
  const char* const name = entry->algorithm.data();
  entry->algorithm = "halving-doubling-and-more";
  EXPECT_EQ(entry->algorithm.data(), name);
  EXPECT_EQ(log.Next(), entry);
}

TEST(FlightLogTest, MayKeepNone) {
  FlightLog log;
  EXPECT_EQ(log.Next(), nullptr);
  log.Open(0, 4);
  EXPECT_EQ(log.Next(), nullptr);
  EXPECT_THAT(SequencesIn(log), IsEmpty());
}

}  // namespace
}  // namespace spccl::daemon
