#include "base/version.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "spccl/spccl.h"

namespace spccl {
namespace {

TEST(VersionTest, ThePublicHeaderSaysTheSame) {
  EXPECT_EQ(kVersionMajor, SPCCL_MAJOR);
  EXPECT_EQ(kVersionMinor, SPCCL_MINOR);
  EXPECT_EQ(kVersionPatch, SPCCL_PATCH);
  EXPECT_EQ(kVersionCode, SPCCL_VERSION_CODE);
}

TEST(VersionTest, TheTextIsMadeOfTheNumbers) {
  EXPECT_EQ(std::string(kVersion),
            absl::StrCat(kVersionMajor, ".", kVersionMinor, ".", kVersionPatch));
}

}  // namespace
}  // namespace spccl
