// The ranks' ends of relays, all in this process, and the copies that they make; the daemon's end
// is played here.
#include "client/relay.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "client/copy.h"
#include "collective/op.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"

namespace spccl::client {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes Random(size_t bytes, std::mt19937* random) {
  Bytes data(bytes);
  for (auto& byte : data) byte = static_cast<unsigned char>((*random)());
  return data;
}

// Both copies, the second in every way that this processor has, of bytes at random places: nothing
// beside them changes.
void ExpectCopies(size_t buffer_bytes, size_t most, size_t most_offset, int rounds) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Bytes source = Random(buffer_bytes, &random);
  for (int round = 0; round < rounds; ++round) {
    const size_t bytes = random() % most, from = random() % most_offset,
                 to = random() % most_offset;
    SCOPED_TRACE(std::to_string(bytes) + " bytes from " + std::to_string(from) + " to " +
                 std::to_string(to));
    Bytes expected(buffer_bytes, 7);
    std::memcpy(expected.data() + to, source.data() + from, bytes);
    Bytes got(buffer_bytes, 7);
    CopyAhead(got.data() + to, source.data() + from, bytes);
    ASSERT_TRUE(got == expected);
    for (const bool wide : {false, HasWideStores()}) {
      std::fill(got.begin(), got.end(), 7);
      CopyPastCaches(got.data() + to, source.data() + from, bytes, wide);
      ASSERT_TRUE(got == expected) << wide;
    }
  }
}

TEST(CopyTest, EveryAlignmentAndNothingBeside) {
  ExpectCopies(500, 400, 70, 2000);
}

// More than the pages that are copied side by side, with what is left over.
TEST(CopyTest, SlicesOfManyPages) {
  ExpectCopies(60'000, 50'000, 5000, 200);
}

using spccl::testing::CollectiveOracle;
using spccl::testing::FirstDifference;
using spccl::testing::RandomElements;

// The relays of one communicator; each rank has mapped them for itself.
class Ranks {
 public:
  explicit Ranks(uint32_t ranks) {
    const size_t bytes = shm::RelayBytes(ranks);
    const UniqueFd memfd = *CreateSealedMemfd("relays", bytes);
    daemon_ = *SharedMapping::Create(memfd.get(), bytes);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      relays_.push_back(
          std::make_unique<Relay>(*SharedMapping::Create(memfd.get(), bytes), rank, ranks));
    }
  }

  Relay& relay(uint32_t rank) { return *relays_[rank]; }
  void Decide(uint64_t decision) {
    for (uint32_t rank = 0; rank < relays_.size(); ++rank) control(rank).decision = decision;
  }
  shm::RelayControl& control(uint32_t rank) {
    return *reinterpret_cast<shm::RelayControl*>(daemon_.data() + rank * shm::kRelayControlBytes);
  }

  // One operation, each rank in a thread: from send[rank] + `skip` on to recv[rank] + `skip`.
  // Returns how often the daemon was told the end.
  int Run(uint64_t sequence, const OpDesc& op, std::vector<testing::Bytes>* send,
          std::vector<testing::Bytes>* recv, size_t skip = 0) {
    Decide(shm::Passes(sequence));
    std::atomic<int> told{0};
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < relays_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const Relay::End end = relay(rank).Exchange(
            {.sequence = sequence,
             .send = (*send)[rank].data() + skip,
             .recv = (*recv)[rank].data() + skip,
             .bytes = op.count * SizeOf(op.dtype),
             .dtype = op.dtype,
             .redop = op.redop},
            {.has_ended = [] { return false; }, .tell_daemon = [&] { ++told; }});
        EXPECT_EQ(end, Relay::End::kComplete);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return told;
  }

 private:
  SharedMapping daemon_;
  std::vector<std::unique_ptr<Relay>> relays_;
};

// Whoever ends last tells the daemon; several may find themselves to be the last, each once.
void ExpectTold(int times, uint32_t ranks) {
  EXPECT_GE(times, 1);
  EXPECT_LE(times, static_cast<int>(ranks));
}

TEST(RelayTest, EveryTypeAndReduction) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
    Ranks all(ranks);
    uint64_t sequence = 0;
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int redop = 0; redop < kRedOpCount; ++redop) {
        OpDesc op{.kind = OpKind::kAllReduce,
                  .dtype = static_cast<DType>(dtype),
                  .redop = static_cast<RedOp>(redop)};
        // Sometimes more than a slice; then another rank reduces the rest.
        const size_t most = random() % 4 == 0 ? 2 * shm::kRelaySlotBytes : 3000;
        op.count = 1 + random() % (most / SizeOf(op.dtype));
        SCOPED_TRACE("dtype " + std::to_string(dtype) + " redop " + std::to_string(redop) +
                     " count " + std::to_string(op.count) + " ranks " + std::to_string(ranks));
        std::vector<testing::Bytes> send, recv;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          // The oracle has no rule for the extremes of what is no number.
          const bool specials = op.redop == RedOp::kSum;
          send.push_back(RandomElements(op.dtype, op.count, 0.3, specials, &random));
        }
        recv = send;
        ExpectTold(all.Run(sequence++, op, &send, &recv), ranks);
        const auto expected = CollectiveOracle(op, send);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(FirstDifference(op.dtype, expected[rank], recv[rank]), std::nullopt) << rank;
        }
      }
    }
  }
}

// More slices than slots; at odd places in memory; in place and not; nothing beside them changes.
TEST(RelayTest, ManySlices) {
  constexpr size_t kSkip = 20, kBeside = 64;
  std::mt19937_64 random(1);
  for (const uint32_t ranks : {2u, 3u}) {
    Ranks all(ranks);
    const size_t bytes = 30 * shm::kRelaySlotBytes + 12344;
    const OpDesc op{.kind = OpKind::kAllReduce, .dtype = DType::kInt32, .count = bytes / 4};
    for (const bool in_place : {false, true}) {
      std::vector<testing::Bytes> send;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        send.push_back(RandomElements(op.dtype, (bytes + kBeside) / 4, 0.3, false, &random));
      }
      const OpDesc whole{.kind = op.kind, .dtype = op.dtype, .count = (bytes + kBeside) / 4};
      const auto sums = CollectiveOracle(whole, send);
      std::vector<testing::Bytes> expected = send, recv = send;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        std::copy_n(sums[rank].begin() + kSkip, bytes, expected[rank].begin() + kSkip);
      }
      auto* const from = in_place ? &recv : &send;
      ExpectTold(all.Run(in_place ? 8 : 7, op, from, &recv, kSkip), ranks);
      for (uint32_t rank = 0; rank < ranks; ++rank) EXPECT_TRUE(recv[rank] == expected[rank]);
    }
  }
}

class LonelyRelayTest : public ::testing::Test {
 protected:
  Relay::End Exchange(const std::function<bool()>& has_ended) {
    return ranks_.relay(0).Exchange(
        {.sequence = 5,
         .send = data_.data(),
         .recv = data_.data(),
         .bytes = data_.size(),
         .dtype = DType::kUint8,
         .redop = RedOp::kSum},
        {.has_ended = has_ended, .tell_daemon = [] { ADD_FAILURE() << "the other rank is not"; }});
  }

  Ranks ranks_{2};
  Bytes data_ = Bytes(1000, 5);
};

TEST_F(LonelyRelayTest, LeavesTheBuffersToTheDaemonIfThatDeclines) {
  ranks_.Decide(shm::Declined(5));
  EXPECT_EQ(Exchange([] { return false; }), Relay::End::kElsewhere);
  EXPECT_EQ(data_, Bytes(1000, 5));
}

// Nobody rings: it looks again by itself.
TEST_F(LonelyRelayTest, StopsWhenTheOperationEnds) {
  ranks_.Decide(shm::Passes(4));  // an earlier one
  int asked = 0;
  EXPECT_EQ(Exchange([&asked] { return ++asked == 3; }), Relay::End::kElsewhere);
  EXPECT_EQ(asked, 3);
  ranks_.Decide(shm::Passes(5));
  asked = 0;
  EXPECT_EQ(Exchange([&asked] { return ++asked == 3; }), Relay::End::kCutShort);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(ranks_.control(0).sleepers, 0u);
  EXPECT_EQ(ranks_.control(0).done, 0u);
  EXPECT_EQ(data_, Bytes(1000, 5));
}

}  // namespace
}  // namespace spccl::client
