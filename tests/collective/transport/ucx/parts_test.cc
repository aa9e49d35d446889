#include "collective/transport/ucx/parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace spccl::transport::ucx {
namespace {

constexpr Key128 kLink{1, 2};

struct Part {
  Message message;
  std::span<const std::byte> bytes;
};

std::vector<std::byte> Content(uint64_t bytes, uint8_t seed) {
  std::vector<std::byte> content(bytes);
  for (uint64_t i = 0; i < bytes; ++i) content[i] = std::byte(seed + i / 7);
  return content;
}

std::vector<Part> Cut(std::span<const std::byte> content, uint32_t number, uint8_t stream = 0,
                      Key128 link = kLink) {
  std::vector<Part> parts;
  for (uint64_t offset = 0; offset < content.size(); offset += kPartBytes) {
    const Message message{.kind = MessageKind::kFrame,
                          .token = link,
                          .stream = stream,
                          .frame_bytes = content.size(),
                          .part_offset = offset,
                          .part_of = number};
    parts.push_back({message, content.subspan(offset, PartBytesOf(message))});
  }
  return parts;
}

bool Holds(const Frame& frame, std::span<const std::byte> content) {
  return frame.valid() && std::equal(content.begin(), content.end(), frame.data(),
                                     frame.data() + frame.size_bytes());
}

class PartsTest : public ::testing::Test {
 protected:
  PartsTest() { parts_.Admit(kLink); }
  absl::StatusOr<Frame> Take(const Part& part) { return parts_.Take(part.message, part.bytes); }

  FramePool pool_{size_t{1} << 20};
  Parts parts_{&pool_};
};

TEST_F(PartsTest, FramesComeTogetherInAnyOrderOfTheirParts) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<std::byte>> contents;
    std::vector<Part> all;
    for (uint32_t number = 0; number < 6; ++number) {
      const uint64_t edge = (1 + random() % 4) * kPartBytes;
      contents.push_back(Content(edge - 1 + random() % 3, static_cast<uint8_t>(random())));
    }
    for (uint32_t number = 0; number < 6; ++number) {
      // Numbers are a stream's own.
      const auto parts = Cut(contents[number], number / 2, number % 2);
      all.insert(all.end(), parts.begin(), parts.end());
    }
    std::shuffle(all.begin(), all.end(), random);
    int whole = 0;
    for (const Part& part : all) {
      const auto frame = Take(part);
      ASSERT_TRUE(frame.ok()) << frame.status();
      if (!frame->valid()) continue;
      ++whole;
      EXPECT_TRUE(Holds(*frame, contents[part.message.part_of * 2 + part.message.stream]));
    }
    EXPECT_EQ(whole, 6);
  }
}

TEST_F(PartsTest, APartThatComesTwiceIsALie) {
  const auto content = Content(3 * kPartBytes, 1);
  const auto parts = Cut(content, 0);
  EXPECT_TRUE(Take(parts[1]).ok());
  const auto again = Take(parts[1]);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find("comes twice"), std::string::npos) << again.status();
}

TEST_F(PartsTest, PartsOfFramesOfTwoSizesAreALie) {
  const auto small = Content(2 * kPartBytes, 1), large = Content(3 * kPartBytes, 1);
  EXPECT_TRUE(Take(Cut(small, 0)[0]).ok());
  const auto other = Take(Cut(large, 0)[2]);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("is of one of"), std::string::npos) << other.status();
}

TEST_F(PartsTest, IncompleteFramesAreBounded) {
  const auto content = Content(2 * kPartBytes, 1);
  for (uint32_t number = 0; number < Parts::kMostFrames; ++number) {
    ASSERT_TRUE(Take(Cut(content, number)[0]).ok()) << number;
  }
  EXPECT_FALSE(Take(Cut(content, Parts::kMostFrames)[0]).ok());
  // Those that were begun may end, which makes room, and another link has its own.
  const auto whole = Take(Cut(content, 0)[1]);
  ASSERT_TRUE(whole.ok());
  EXPECT_TRUE(Holds(*whole, content));
  EXPECT_TRUE(Take(Cut(content, Parts::kMostFrames)[0]).ok());
  parts_.Admit({3, 4});
  EXPECT_TRUE(Take(Cut(content, 0, 0, {3, 4})[0]).ok());
}

TEST_F(PartsTest, BytesOfIncompleteFramesAreBounded) {
  const auto content = Content(kPartBytes, 1);
  const auto first_of = [&](uint64_t frame_bytes, uint32_t number) {
    return Take({{.kind = MessageKind::kFrame,
                  .token = kLink,
                  .frame_bytes = frame_bytes,
                  .part_of = number},
                 content});
  };
  EXPECT_TRUE(first_of(Parts::kMostBytes, 0).ok());
  EXPECT_FALSE(first_of(2 * kPartBytes, 1).ok());
  parts_.Forget(kLink);
  EXPECT_FALSE(parts_.Admits(kLink));
  parts_.Admit(kLink);
  EXPECT_TRUE(first_of(2 * kPartBytes, 1).ok());
}

}  // namespace
}  // namespace spccl::transport::ucx
