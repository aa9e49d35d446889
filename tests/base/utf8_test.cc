#include "base/utf8.h"

#include <string_view>

#include "gtest/gtest.h"

namespace spccl {
namespace {

TEST(Utf8Test, SequencesHaveTheirLengths) {
  EXPECT_EQ(Utf8Length("a"), 1U);
  EXPECT_EQ(Utf8Length("\xC3\xA4z"), 2U);
  EXPECT_EQ(Utf8Length("\xE2\x82\xAC"), 3U);
  EXPECT_EQ(Utf8Length("\xF0\x9F\x98\x80"), 4U);
}

TEST(Utf8Test, WhatIsNoTextIsToldFromIt) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("gr\xC3\xBC\xC3\x9F \xF4\x8F\xBF\xBF"));
  // Stray, cut off, overlong, a surrogate, beyond the last one.
  for (const std::string_view text :
       {"\x80", "a\xFF", "\xC3", "\xE2\x82", "\xC0\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(text));
  }
}

}  // namespace
}  // namespace spccl
