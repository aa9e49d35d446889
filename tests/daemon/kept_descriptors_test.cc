#include "daemon/kept_descriptors.h"

#include "gtest/gtest.h"
#include "tests/daemon/descriptor_limit.h"

namespace spccl::daemon {
namespace {

rlim_t SoftLimit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

TEST(KeptDescriptorsTest, AreAQuarterAtMostAndNoneOfVeryFew) {
  EXPECT_EQ(DescriptorsToKeep(64), 0u);
  EXPECT_EQ(DescriptorsToKeep(1011), 0u);
  EXPECT_EQ(DescriptorsToKeep(1024), 256u);
  EXPECT_EQ(DescriptorsToKeep(1'048'576), 1024u + 253u);
}

TEST(KeptDescriptorsTest, CanBeUsedWhileThereIsOne) {
  const DescriptorLimit limit(SoftLimit() - 1);
  const rlim_t before = SoftLimit();
  {
    const KeptDescriptors kept;
    EXPECT_GT(SoftLimit(), before);
  }
  EXPECT_EQ(SoftLimit(), before);
}

}  // namespace
}  // namespace spccl::daemon
