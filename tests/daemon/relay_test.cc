#include "daemon/relay.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kRelayRanks = 3;
constexpr uint64_t kRelaySequence = 7;

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    const size_t bytes = shm::RelaySlotsOffset(kRelayRanks);
    const auto memfd = CreateSealedMemfd("relay-test", bytes);
    EXPECT_TRUE(memfd.ok());
    auto mapping = SharedMapping::Create(memfd->get(), bytes);
    EXPECT_TRUE(mapping.ok());
    memory_ = std::make_shared<const SharedMapping>(*std::move(mapping));
    relay_ = std::make_unique<Relay>(memory_, 0, kRelaySequence);
  }
  shm::RelayControl& ControlOf(uint32_t rank) {
    return *reinterpret_cast<shm::RelayControl*>(memory_->data() + rank * shm::kRelayControlBytes);
  }
  void Set(uint32_t rank, uint64_t slice, uint64_t turn) {
    ControlOf(rank).turns[shm::SlotOf(slice, rank, kRelayRanks)].value = turn;
  }
  void HandOver(uint32_t rank, uint64_t slice) {
    Set(rank, slice, shm::HandedOver(kRelaySequence, slice));
  }
  void HandBack(uint32_t rank, uint64_t slice) {
    Set(rank, slice, shm::HandedBack(kRelaySequence, slice));
  }

  MappingRef memory_;
  std::unique_ptr<Relay> relay_;
};

TEST_F(RelayTest, NobodyIsLateBeforeItBegins) {
  EXPECT_THAT(relay_->LateRanks(kRelayRanks), IsEmpty());
  relay_->Decline();
  EXPECT_THAT(relay_->LateRanks(kRelayRanks), IsEmpty());
}

TEST_F(RelayTest, WhereNothingIsHandedOverThoseThatAreNotDoneAreLate) {
  relay_->Begin();
  EXPECT_THAT(relay_->LateRanks(kRelayRanks), ElementsAre(0, 1, 2));
  // Of an operation before it.
  Set(2, 4, shm::HandedOver(kRelaySequence - 1, 4));
  for (const uint32_t rank : {0u, 2u}) ControlOf(rank).done = shm::OpTag(kRelaySequence);
  HandBack(1, 0);
  EXPECT_THAT(relay_->LateRanks(kRelayRanks), ElementsAre(1));
}

// Rank 1 is stopped: the others go on as far as they can.
TEST_F(RelayTest, WhoHasNotHandedOverTheFirstSliceIsLate) {
  relay_->Begin();
  HandOver(2, 0);
  HandOver(2, 1);
  HandOver(0, 1);
  EXPECT_THAT(relay_->LateRanks(kRelayRanks), ElementsAre(1));
}

TEST_F(RelayTest, TheOwnerIsLateWhereAllHaveHandedTheSliceOver) {
  relay_->Begin();
  HandBack(1, 0);
  HandBack(2, 0);
  HandOver(0, 1);
  HandOver(2, 1);
  HandOver(0, 2);  // which rank 1 has not, and is not the first
  EXPECT_THAT(relay_->LateRanks(kRelayRanks), ElementsAre(1));
}

// Those who share the memory may write anything there.
TEST_F(RelayTest, LiesNameARankAtMost) {
  relay_->Begin();
  for (const uint64_t lie :
       {~uint64_t{0}, shm::OpTag(kRelaySequence + 1) - 2, shm::OpTag(kRelaySequence + 1)}) {
    for (uint32_t rank = 0; rank < kRelayRanks; ++rank) {
      for (auto& turn : ControlOf(rank).turns) turn.value = lie;
    }
    for (const uint32_t rank : relay_->LateRanks(kRelayRanks)) EXPECT_LT(rank, kRelayRanks);
  }
}

}  // namespace
}  // namespace spccl::daemon
