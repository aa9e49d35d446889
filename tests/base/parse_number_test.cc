#include "base/parse_number.h"

#include <gtest/gtest.h>

namespace spccl {
namespace {

TEST(ParseNumberTest, WholeNumbersInTheRange) {
  uint64_t value = 7;
  for (const char* wrong :
       {"", "x", "1x", "-1", "+1", " 1", "1.0", "2", "11", "99999999999999999999"})
    EXPECT_FALSE(ParseInteger(wrong, 3, 10, &value)) << wrong;
  EXPECT_EQ(value, 7u);
  EXPECT_TRUE(ParseInteger("10", 3, 10, &value));
  EXPECT_EQ(value, 10u);
}

TEST(ParseNumberTest, BytesWithTheirUnits) {
  uint64_t value = 7;
  for (const char* wrong : {"", "K", "iB", "4iB", "4KB", "4k", "0", "8388608T", "4 K"})
    EXPECT_FALSE(ParseBytes(wrong, 1, &value)) << wrong;
  EXPECT_EQ(value, 7u);
  EXPECT_TRUE(ParseBytes("4096", 1, &value));
  EXPECT_EQ(value, 4096u);
  EXPECT_TRUE(ParseBytes("64GiB", 1, &value));
  EXPECT_EQ(value, uint64_t{64} << 30);
  EXPECT_TRUE(ParseBytes("1T", 1, &value));
  EXPECT_EQ(value, uint64_t{1} << 40);
  EXPECT_TRUE(ParseBytes("0", 0, &value));
  EXPECT_EQ(value, 0u);
}

}  // namespace
}  // namespace spccl
