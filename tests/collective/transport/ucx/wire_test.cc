#include "collective/transport/ucx/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace spccl::transport::ucx {
namespace {

Message AMessage() {
  return {.kind = MessageKind::kFrame,
          .token = {1, 2},
          .communicator = {3, 4},
          .sequence = 5,
          .facts = {.op = {OpKind::kBroadcast, DType::kFloat16, RedOp::kMax, 6, 7},
                    .plan = 8,
                    .on_gpus = true},
          .tag = {.from = 9, .to = 10, .lane = 11, .chunk = 12, .phase = Phase::kAllGather},
          .stream = 13,
          .index = 14,
          .frame_bytes = 2 * kPartBytes + 15,
          .part_offset = 2 * kPartBytes,
          .part_of = 16};
}

TEST(WireTest, AMessageComesBackAsItWas) {
  const Message sent = AMessage();
  const auto got = ParseMessage(FormatMessage(sent));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->kind, sent.kind);
  EXPECT_EQ(got->token, sent.token);
  EXPECT_EQ(got->communicator, sent.communicator);
  EXPECT_EQ(got->sequence, 5);
  EXPECT_EQ(got->facts, sent.facts);
  EXPECT_EQ(got->tag.from, 9);
  EXPECT_EQ(got->tag.to, 10);
  EXPECT_EQ(got->tag.lane, 11);
  EXPECT_EQ(got->tag.chunk, 12);
  EXPECT_EQ(got->tag.phase, Phase::kAllGather);
  EXPECT_EQ(got->stream, 13);
  EXPECT_EQ(got->index, 14);
  EXPECT_EQ(got->frame_bytes, 2 * kPartBytes + 15);
  EXPECT_EQ(got->part_offset, 2 * kPartBytes);
  EXPECT_EQ(got->part_of, 16);
  EXPECT_EQ(PartBytesOf(*got), 15);
}

TEST(WireTest, WhatIsNoMessageIsRefused) {
  const MessageBytes good = FormatMessage(AMessage());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseMessage(std::span(good).first(size)).has_value()) << size;
  }
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.emplace_back();
  EXPECT_FALSE(ParseMessage(longer).has_value());
  // Magic, version, kind, phase, op, dtype, redop, reserved, part_offset.
  for (size_t at : {0, 1, 2, 3, 4, 5, 7, 48, 49, 50, 51, 112}) {
    MessageBytes bad = good;
    bad[at] = std::byte{0xEE};
    EXPECT_FALSE(ParseMessage(bad).has_value()) << "byte " << at;
  }
  Message large = AMessage();
  large.frame_bytes = FramePool::kLargestFrame + 1;
  EXPECT_FALSE(ParseMessage(FormatMessage(large)).has_value());
}

TEST(WireTest, PartsBeginWhereAFrameIsCut) {
  const auto parses = [](Message message) {
    return ParseMessage(FormatMessage(message)).has_value();
  };
  Message part = AMessage();
  for (const uint64_t offset : {uint64_t{0}, kPartBytes, 2 * kPartBytes}) {
    part.part_offset = offset;
    EXPECT_TRUE(parses(part)) << offset;
    part.part_offset = offset + 1;
    EXPECT_FALSE(parses(part)) << offset;
  }
  part.part_offset = 3 * kPartBytes;
  EXPECT_FALSE(parses(part));
  EXPECT_FALSE(parses({.kind = MessageKind::kOpen, .part_of = 1}));
  EXPECT_FALSE(parses(
      {.kind = MessageKind::kOpen, .frame_bytes = 2 * kPartBytes, .part_offset = kPartBytes}));
}

TEST(WireTest, ProbesAndAnswersToThemHaveTheirOwnRanges) {
  const auto parses = [](Message message) {
    return ParseMessage(FormatMessage(message)).has_value();
  };
  EXPECT_TRUE(parses({.kind = MessageKind::kProbe, .frame_bytes = kProbeBytes}));
  EXPECT_FALSE(parses({.kind = MessageKind::kProbe, .frame_bytes = kProbeBytes - 1}));
  EXPECT_FALSE(parses({.kind = MessageKind::kProbe, .frame_bytes = FramePool::kLargestFrame}));
  EXPECT_TRUE(parses({.kind = MessageKind::kProbed, .sequence = kProbes, .index = 1}));
  EXPECT_FALSE(
      parses({.kind = MessageKind::kProbed, .sequence = kProbes + kProbesAnAnswer, .index = 1}));
  EXPECT_FALSE(parses({.kind = MessageKind::kProbed, .sequence = kProbes - 1, .index = 1}));
  EXPECT_FALSE(parses({.kind = MessageKind::kProbed, .sequence = 0, .index = 1}));
  EXPECT_FALSE(parses({.kind = MessageKind::kProbed, .sequence = kProbes, .index = 0}));
}

TEST(WireTest, RandomBytesAreParsedOrRefused) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const MessageBytes good = FormatMessage(AMessage());
  for (int round = 0; round < 100'000; ++round) {
    MessageBytes bytes = good;
    for (int change = 0; change < 3; ++change) bytes[random() % 120] = std::byte(random());
    const auto message = ParseMessage(bytes);
    if (!message.has_value()) continue;
    EXPECT_LE(message->frame_bytes, FramePool::kLargestFrame);
    // What was taken says all there was.
    EXPECT_EQ(FormatMessage(*message), bytes);
  }
}

TEST(WireTest, AnOfferComesBackAndDamageIsFound) {
  const Offer offer{{1, 2}, {"here", std::string("th\0ere", 6)}};
  const std::string bytes = FormatOffer(offer);
  const auto got = ParseOffer(bytes);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->token, offer.token);
  EXPECT_EQ(got->addresses, offer.addresses);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] ^= 0x10;
    EXPECT_FALSE(ParseOffer(bad).ok()) << at;
    EXPECT_FALSE(ParseOffer(bytes.substr(0, at)).ok()) << at;
  }
  EXPECT_FALSE(ParseOffer(FormatOffer({{1, 2}, {}})).ok());
}

TEST(WireTest, KeysDiffer) {
  EXPECT_NE(RandomKey(), RandomKey());
}

TEST(WireTest, FactsAreSaidInWords) {
  EXPECT_EQ(Describe({.op = {.count = 5}, .plan = 255}), "all_reduce of 5 float32, sum, plan ff");
  EXPECT_EQ(Describe({.op = {OpKind::kBroadcast, DType::kFloat32, RedOp::kSum, 3, 5}}),
            "broadcast of 5 float32, root 3, plan 0");
}

}  // namespace
}  // namespace spccl::transport::ucx
