#include "examples/classifier/features.h"

#include <gtest/gtest.h>

#include <cmath>

namespace classifier {
namespace {

TEST(HashTrigrams, CountsEachRunOfThreeOnce) {
  EXPECT_EQ(HashTrigrams("abc", 20).size(), 1u);
  EXPECT_EQ(HashTrigrams("abcd", 20).size(), 2u);
  EXPECT_EQ(HashTrigrams("aaaaaa", 20).size(), 1u);
  EXPECT_TRUE(HashTrigrams("ab", 20).empty());
  EXPECT_TRUE(HashTrigrams("", 20).empty());
}

TEST(HashTrigrams, FoldsCaseAndWhiteSpace) {
  const auto one = HashTrigrams("Read me\n\n\tnow", 20), other = HashTrigrams("read  ME now", 20);
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].bucket, other[i].bucket);
    EXPECT_EQ(one[i].weight, other[i].weight);
  }
}

TEST(HashTrigrams, HasLengthOneAndRisingBuckets) {
  for (const int bits : {8, 20, 26}) {
    const auto features =
        HashTrigrams("the quick brown fox jumps over the lazy dog, the fox", bits);
    double squares = 0;
    for (size_t i = 0; i < features.size(); ++i) {
      EXPECT_LT(features[i].bucket, 1u << bits);
      if (i > 0) {
        EXPECT_LT(features[i - 1].bucket, features[i].bucket);
      }
      squares += features[i].weight * features[i].weight;
    }
    EXPECT_NEAR(squares, 1, 1e-5);
  }
}

TEST(HashTrigrams, WeighsWhatIsFrequentMore) {
  const auto features = HashTrigrams("abcabcabcabcxyz", 20);
  const auto abc = HashTrigrams("abc", 20)[0].bucket, xyz = HashTrigrams("xyz", 20)[0].bucket;
  float abc_weight = 0, xyz_weight = 0;
  for (const Feature& feature : features) {
    if (feature.bucket == abc) abc_weight = feature.weight;
    if (feature.bucket == xyz) xyz_weight = feature.weight;
  }
  EXPECT_GT(abc_weight, xyz_weight);
  EXPECT_GT(xyz_weight, 0);
}

}  // namespace
}  // namespace classifier
