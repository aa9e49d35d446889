#include "kernels/simt/fibre_stacks.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::simt {
namespace {

TEST(FibreStacksTest, EachIsOfItsOwn) {
  const FibreStacks stacks(5);
  for (uint32_t i = 0; i < 5; ++i) {
    ASSERT_FALSE(stacks.at(i).empty());
    std::memset(stacks.at(i).data(), static_cast<int>(i + 1), stacks.at(i).size());
  }
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_THAT(stacks.at(i), testing::Each(static_cast<char>(i + 1)));
  }
}

TEST(FibreStacksTest, NoneIsNone) {
  const FibreStacks stacks(0);
}

#if !defined(__SANITIZE_THREAD__)
TEST(FibreStacksDeathTest, WhatIsBelowMayNotBeTouched) {
  const FibreStacks stacks(2);
  for (const uint32_t i : {0, 1}) {
    volatile char* const below = stacks.at(i).data() - 1;
    EXPECT_DEATH(*below = 1, "");
  }
}
#endif

}  // namespace
}  // namespace spccl::simt
