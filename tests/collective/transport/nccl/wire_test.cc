#include "collective/transport/nccl/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

Message RandomMessage(std::mt19937_64* random) {
  const auto small = [random] { return static_cast<uint32_t>((*random)() % 1000); };
  Message message{.kind = static_cast<MessageKind>((*random)() % kMessageKindCount)};
  for (char& byte : message.unique_id.internal) byte = static_cast<char>((*random)());
  message.rank = small();
  message.text = std::string(small(), 'x');
  message.communicator = {(*random)(), (*random)()};
  message.sequence = (*random)();
  message.plan = (*random)();
  message.group = (*random)();
  for (uint32_t i = small() % 20; i > 0; --i) {
    const uint64_t flags = 1 + (*random)() % 3;
    Announced frame{.id = (*random)(), .announces = (flags & 1) != 0, .offers = (flags & 2) != 0};
    if (frame.announces) {
      frame.tag = {small(), small(), (*random)(), small(), static_cast<Phase>(small() % 2)};
      frame.from = small();
      frame.bytes = (*random)() % (FramePool::kLargestFrame + 1);
    }
    if (frame.offers) frame.head.fill(static_cast<std::byte>((*random)()));
    message.frames.push_back(frame);
    message.ids.push_back((*random)());
    message.transfers.push_back({(*random)(), small(), small(), small()});
  }
  return message;
}

TEST(NcclWireTest, WhatIsWrittenIsRead) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 2000; ++round) {
    const std::string bytes = FormatMessage(RandomMessage(&random));
    const auto read = ParseMessage(bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(FormatMessage(*read), bytes);
    // Neither less nor more than all of it.
    if (read->kind != MessageKind::kFailed) {
      EXPECT_FALSE(ParseMessage(std::string_view(bytes).substr(0, bytes.size() - 1)).ok());
      EXPECT_FALSE(ParseMessage(bytes + '\0').ok());
    }
  }
}

TEST(NcclWireTest, WhatIsChangedIsRefusedOrAnotherMessage) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = FormatMessage(RandomMessage(&random));
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    const auto read = ParseMessage(bytes);
    if (read.ok()) EXPECT_EQ(FormatMessage(*read), bytes);
  }
}

TEST(NcclWireTest, RefusesCountsThatCannotBe) {
  std::string bytes = FormatMessage({.kind = MessageKind::kReady, .transfers = {{1, 2, 3, 4}}});
  bytes[2] = '\xff';  // the count's lowest byte
  EXPECT_FALSE(ParseMessage(bytes).ok());
}

}  // namespace
}  // namespace spccl::transport::nccl
