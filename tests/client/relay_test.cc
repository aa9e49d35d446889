// The client's end of a relay, and the copies that it makes; the daemon's end is played here.
#include "client/relay.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "client/copy.h"
#include "gtest/gtest.h"

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

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() : memory_(*Region::Allocate(shm::kRelayBytes)) {}

  shm::RelayControl& control() { return *reinterpret_cast<shm::RelayControl*>(memory_->data()); }

  // Hands slices 0 .. slices-1 back, each byte one more.
  void PlayDaemon(uint64_t slices) {
    for (uint64_t slice = 0; slice < slices; ++slice) {
      const uint64_t slot = slice % shm::kRelaySlots;
      std::atomic<uint32_t>& turn = control().turns[slot].value;
      while (turn != shm::HandedOver(slice)) std::this_thread::yield();
      std::byte* data = memory_->data() + shm::kRelaySlotsOffset + slot * shm::kRelaySlotBytes;
      for (size_t i = 0; i < shm::kRelaySlotBytes; ++i) {
        data[i] = std::byte(static_cast<unsigned char>(data[i]) + 1);
      }
      turn = shm::HandedBack(slice);
      ++control().client_bell;
      FutexWakeAll(&control().client_bell);
    }
  }

  const std::shared_ptr<Region> memory_;
};

TEST_F(RelayTest, PassesABufferThroughInPlaceAndNot) {
  std::mt19937 random(1);
  for (const size_t bytes : {size_t{1}, shm::kRelaySlotBytes, 20 * shm::kRelaySlotBytes + 12345}) {
    for (const bool in_place : {false, true}) {
      Bytes send = Random(bytes, &random), expected = send, other(bytes);
      for (auto& byte : expected) ++byte;
      Bytes& recv = in_place ? send : other;
      Relay relay(memory_, [] {});
      std::thread daemon(
          [&] { PlayDaemon((bytes + shm::kRelaySlotBytes - 1) / shm::kRelaySlotBytes); });
      relay.Exchange(send.data(), recv.data(), bytes, [] { return false; });
      daemon.join();
      EXPECT_TRUE(recv == expected) << bytes << (in_place ? " in place" : "");
    }
  }
}

TEST_F(RelayTest, StopsWhenTheDaemonDeclinesOrTheOperationEnds) {
  Bytes data(1000, 5);
  Relay declined(memory_, [] {});
  control().declined = 1;
  declined.Exchange(data.data(), data.data(), data.size(), [] { return false; });
  Relay ended(memory_, [] {});
  int asked = 0;
  // Nobody rings: it looks again by itself.
  ended.Exchange(data.data(), data.data(), data.size(), [&asked] { return ++asked == 3; });
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(data, Bytes(1000, 5));
}

// The last slice comes back, and the operation ends, after the client has looked for the slice and
// before it asks whether the operation has ended.
TEST_F(RelayTest, WhatCameBackJustBeforeTheEndIsCopied) {
  Bytes data(1000, 5);
  Relay relay(memory_, [] {});
  relay.Exchange(data.data(), data.data(), data.size(), [this] {
    PlayDaemon(1);
    return true;
  });
  EXPECT_EQ(data, Bytes(1000, 6));
}

TEST_F(RelayTest, RingsOnlyForADaemonThatWaits) {
  Bytes data(1000);
  int rings = 0;
  Relay relay(memory_, [&rings] { ++rings; });
  relay.Exchange(data.data(), data.data(), data.size(), [] { return true; });
  EXPECT_EQ(rings, 0);
  Relay waited_for(memory_, [&rings] { ++rings; });
  control().daemon_waits = shm::kWantsDoorbell;
  waited_for.Exchange(data.data(), data.data(), data.size(), [] { return true; });
  EXPECT_EQ(rings, 1);
  EXPECT_EQ(control().daemon_waits, 0u);
}

}  // namespace
}  // namespace spccl::client
