#include "collective/transport/nccl/sequencer.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

TEST(SequencerTest, TakesWhatIsReadyUpToTheBounds) {
  Sequencer sequencer({.most_transfers = 2, .most_bytes = 100, .most_open_groups = 2}, {0, 1, 2});
  EXPECT_FALSE(sequencer.Next().has_value());
  sequencer.Add({.id = 1, .from = 0, .to = 1, .bytes = 10});
  sequencer.Add({.id = 2, .from = 0, .to = 1, .bytes = 10});
  sequencer.Add({.id = 3, .from = 2, .to = 0, .bytes = 10});
  sequencer.Add({.id = 4, .from = 0, .to = 1, .bytes = 10});  // a third of rank 0's
  sequencer.Add({.id = 5, .from = 0, .to = 1, .bytes = 500});
  const auto first = sequencer.Next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->number, 1U);
  EXPECT_EQ(first->transfers.size(), 3U);
  const auto second = sequencer.Next();
  ASSERT_TRUE(second.has_value());
  ASSERT_EQ(second->transfers.size(), 1U);  // the large one does not fit beside it
  EXPECT_EQ(second->transfers[0].id, 4U);
  EXPECT_FALSE(sequencer.Next().has_value());  // two are open
  EXPECT_TRUE(sequencer.Done(1, 0).ok());
  EXPECT_TRUE(sequencer.Done(1, 1).ok());
  EXPECT_FALSE(sequencer.Next().has_value());
  EXPECT_TRUE(sequencer.Done(1, 2).ok());
  const auto third = sequencer.Next();
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->transfers[0].bytes, 500U);  // alone, whatever its size
}

TEST(SequencerTest, RefusesWordOfGroupsThatAreNotOpenThere) {
  Sequencer sequencer({}, {0, 1, 2});
  sequencer.Add({.id = 1, .from = 0, .to = 1, .bytes = 10});
  ASSERT_TRUE(sequencer.Next().has_value());
  EXPECT_FALSE(sequencer.Done(1, 2).ok());
  EXPECT_FALSE(sequencer.Done(2, 0).ok());
  EXPECT_TRUE(sequencer.Done(1, 0).ok());
  EXPECT_FALSE(sequencer.Done(1, 0).ok());
}

TEST(SequencerTest, KeepsTheOrderOfTwoRanksAndLosesNothing) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 50; ++round) {
    const uint32_t ranks = 2 + random() % 6;
    std::vector<uint32_t> node_of_rank;
    for (uint32_t rank = 0; rank < ranks; ++rank) node_of_rank.push_back(random() % 3);
    Sequencer sequencer({.most_transfers = 1 + random() % 4,
                         .most_bytes = random() % 1000,
                         .most_open_groups = 1 + random() % 3},
                        node_of_rank);
    std::map<std::pair<uint32_t, uint32_t>, std::pair<uint64_t, uint64_t>> added_seen;
    std::vector<std::pair<uint64_t, uint32_t>> open;  // who is not done
    uint64_t left = 300, last = 0;
    while (left > 0 || sequencer.waiting() > 0 || !open.empty()) {
      const uint64_t dice = random() % 3;
      if (dice == 0 && left > 0) {
        const uint32_t from = random() % ranks;
        const uint32_t to = (from + 1 + random() % (ranks - 1)) % ranks;
        sequencer.Add({.id = ++added_seen[{from, to}].first,
                       .from = from,
                       .to = to,
                       .bytes = random() % 400});
        --left;
      } else if (dice == 1 && !open.empty()) {
        const size_t any = random() % open.size();
        EXPECT_TRUE(sequencer.Done(open[any].first, open[any].second).ok());
        open.erase(open.begin() + static_cast<ptrdiff_t>(any));
      } else if (const auto group = sequencer.Next()) {
        EXPECT_EQ(group->number, ++last);
        std::set<uint32_t> nodes;
        for (const Transfer& transfer : group->transfers) {
          auto& [added, seen] = added_seen[{transfer.from, transfer.to}];
          EXPECT_EQ(transfer.id, ++seen);
          nodes.insert({node_of_rank[transfer.from], node_of_rank[transfer.to]});
        }
        for (const uint32_t node : nodes) open.emplace_back(group->number, node);
      }
    }
    for (const auto& [ranks_of, counts] : added_seen) EXPECT_EQ(counts.first, counts.second);
    EXPECT_EQ(sequencer.open_groups(), 0U);
  }
}

}  // namespace
}  // namespace spccl::transport::nccl
