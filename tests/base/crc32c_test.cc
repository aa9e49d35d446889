#include "base/crc32c.h"

#include <array>
#include <cstdint>
#include <numeric>
#include <string>

#include "gtest/gtest.h"

namespace spccl {
namespace {

// The test patterns of RFC 3720 (iSCSI), appendix B.4.
TEST(Crc32cTest, MatchesThePatternsOfRfc3720) {
  std::array<uint8_t, 32> bytes{};
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), 0x8A9136AAu);
  bytes.fill(0xFF);
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), 0x62A8AB43u);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), 0x46DD794Eu);
  std::iota(bytes.rbegin(), bytes.rend(), uint8_t{0});
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), 0x113FDB5Cu);
}

TEST(Crc32cTest, MatchesTheCheckValueOfTheCatalogue) {
  const std::string digits = "123456789";
  EXPECT_EQ(Crc32c(digits.data(), digits.size()), 0xE3069283u);
}

TEST(Crc32cTest, OfNothingIsZero) {
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
}

TEST(Crc32cTest, ChangesWithEveryBitOfAHeader) {
  std::array<uint8_t, 44> header{};
  const uint32_t before = Crc32c(header.data(), header.size());
  for (size_t bit = 0; bit < header.size() * 8; ++bit) {
    header[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_NE(Crc32c(header.data(), header.size()), before) << "bit " << bit;
    header[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
}

}  // namespace
}  // namespace spccl
