#include "daemon/outbox.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstdint>
#include <utility>

#include "gtest/gtest.h"
#include "proto/shm/socket.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using testing::IsOk;

class OutboxTest : public ::testing::Test {
 protected:
  OutboxTest() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    ours_.Reset(fds[0]);
    theirs_.Reset(fds[1]);
  }
  static shm::Reply Numbered(uint64_t number) {
    shm::Reply reply{};
    reply.request_id = number;
    return reply;
  }
  // Sends until something waits; how many packets that were.
  uint64_t Fill() {
    uint64_t sent = 0;
    while (outbox_.empty()) {
      const absl::Status status = outbox_.Send(ours_.get(), Numbered(sent++), {});
      EXPECT_THAT(status, IsOk());
      if (!status.ok()) break;
    }
    return sent;
  }
  absl::StatusOr<shm::Packet> Receive(shm::Reply* reply) {
    return shm::ReceivePacket(theirs_.get(), reply, sizeof *reply);
  }

  UniqueFd ours_, theirs_;
  Outbox outbox_;
};

TEST_F(OutboxTest, WhatFindsNoRoomComesLaterAndInOrder) {
  const uint64_t full = Fill();
  for (uint64_t i = 0; i < 300; ++i) {
    ASSERT_THAT(outbox_.Send(ours_.get(), Numbered(full + i), {}), IsOk());
  }
  shm::Reply reply;
  for (uint64_t expected = 0; expected < full + 300; ++expected) {
    auto packet = Receive(&reply);
    if (!packet.ok()) {
      ASSERT_TRUE(shm::IsWouldBlock(packet.status())) << packet.status();
      ASSERT_THAT(outbox_.Flush(ours_.get()), IsOk());
      packet = Receive(&reply);
    }
    ASSERT_THAT(packet, IsOk());
    ASSERT_EQ(reply.request_id, expected);
  }
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(OutboxTest, DescriptorsWaitToo) {
  const uint64_t full = Fill();
  UniqueFd event(::eventfd(7, EFD_CLOEXEC));
  ASSERT_THAT(outbox_.Send(ours_.get(), Numbered(full), {event.get()}), IsOk());
  event.Reset();
  shm::Reply reply;
  for (uint64_t i = 0; i < full - 1; ++i) ASSERT_THAT(Receive(&reply), IsOk());
  ASSERT_THAT(outbox_.Flush(ours_.get()), IsOk());
  ASSERT_THAT(Receive(&reply), IsOk());
  const auto packet = Receive(&reply);
  ASSERT_THAT(packet, IsOk());
  ASSERT_EQ(packet->fds.size(), 1U);
  uint64_t value = 0;
  EXPECT_EQ(::read(packet->fds[0].get(), &value, sizeof value), 8);
  EXPECT_EQ(value, 7U);
}

TEST_F(OutboxTest, WhoReadsNothingIsRefusedInTheEnd) {
  Fill();
  for (size_t i = 1; i < Outbox::kMost; ++i) {
    ASSERT_THAT(outbox_.Send(ours_.get(), Numbered(i), {}), IsOk());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(outbox_.Send(ours_.get(), Numbered(0), {})));
  EXPECT_THAT(outbox_.Send(ours_.get(), Numbered(0), {}, /*owed=*/1), IsOk());
}

TEST_F(OutboxTest, FewDescriptorsWait) {
  Fill();
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  for (size_t i = 0; i < Outbox::kMostFds; ++i) {
    ASSERT_THAT(outbox_.Send(ours_.get(), Numbered(i), {event.get()}), IsOk());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(outbox_.Send(ours_.get(), Numbered(0), {event.get()})));
  shm::Reply reply;
  while (Receive(&reply).ok()) EXPECT_THAT(outbox_.Flush(ours_.get()), IsOk());
  EXPECT_TRUE(outbox_.empty());
  Fill();
  EXPECT_THAT(outbox_.Send(ours_.get(), Numbered(0), {event.get()}), IsOk());
}

TEST_F(OutboxTest, NoMoreDescriptorsWaitHoweverManyRanksAreOwedThem) {
  Fill();
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  for (size_t i = 0; i < Outbox::kMostFds + Outbox::kMostOwed; ++i) {
    ASSERT_THAT(outbox_.Send(ours_.get(), Numbered(i), {event.get()}, SIZE_MAX / 2), IsOk());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(
      outbox_.Send(ours_.get(), Numbered(0), {event.get()}, SIZE_MAX / 2)));
}

TEST_F(OutboxTest, AnEndIsNotWaitedFor) {
  theirs_.Reset();
  EXPECT_FALSE(outbox_.Send(ours_.get(), Numbered(0), {}).ok());
  EXPECT_TRUE(outbox_.empty());
}

}  // namespace
}  // namespace spccl::daemon
