#include "examples/image_stacking/images.h"

#include <gtest/gtest.h>

#include <cmath>

namespace image_stacking {
namespace {

TEST(ImagesTest, ComparesByItsDefinitions) {
  const std::vector<double> reference = {0, 1, 2, 4};
  const Quality same = Compare(reference, {0, 1, 2, 4});
  EXPECT_TRUE(std::isinf(same.psnr_db));
  EXPECT_EQ(same.nrmse, 0);
  const Quality off = Compare(reference, {0.5, 1, 2, 3.5});
  EXPECT_NEAR(off.nrmse, std::sqrt(0.5 / 4) / 4, 1e-12);
  EXPECT_NEAR(off.psnr_db, 20 * std::log10(4 / std::sqrt(0.5 / 4)), 1e-9);
  EXPECT_EQ(off.largest, 0.5);
}

TEST(ImagesTest, StackingTakesNoiseAway) {
  const Image field = Field(128);
  const std::vector<double> truth(field.begin(), field.end());
  const double one = Compare(truth, Noisy(field, 0.1, 3, 0)).nrmse;
  const std::vector<double> stack = ExactStack(field, 0.1, 3, 16).mean;
  const double many = Compare(truth, Image(stack.begin(), stack.end())).nrmse;
  EXPECT_NEAR(one / many, 4, 0.4) << "the root of 16";
  EXPECT_EQ(Noisy(field, 0.1, 3, 5), Noisy(field, 0.1, 3, 5));
  EXPECT_NE(Noisy(field, 0.1, 3, 5), Noisy(field, 0.1, 3, 6));
}

TEST(ImagesTest, AMeanInFloatIsOffByItsRoundingAtMost) {
  const Image field = Field(64);
  for (const double noise : {0.0, 1.0, 1e4}) {
    for (const uint32_t count : {2U, 64U}) {
      const Stack exact = ExactStack(field, noise, 3, count);
      Image sum(field.size());
      for (uint32_t image = 0; image < count; ++image) {
        const Image noisy = Noisy(field, noise, 3, image);
        for (size_t i = 0; i < sum.size(); ++i) {
          sum[i] += noisy[i];
          EXPECT_LE(std::fabs(noisy[i]), exact.largest);
        }
      }
      for (float& pixel : sum) pixel /= static_cast<float>(count);
      EXPECT_LE(Compare(exact.mean, sum).largest, RoundingOfMean(count, exact.largest))
          << noise << " " << count;
    }
  }
}

}  // namespace
}  // namespace image_stacking
