#include "examples/classifier/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "examples/classifier/training.h"

namespace classifier {
namespace {

constexpr int kBits = 8, kClasses = 3;

Example Of(int label, const std::string& text) {
  return {.label = label, .features = HashTrigrams(text, kBits)};
}

std::vector<Example> Animals() {
  return {Of(0, "a sparrow is a bird with feathers"), Of(1, "a herring is a fish with scales"),
          Of(2, "an oak is a tree with leaves"),      Of(0, "the bird has feathers and a beak"),
          Of(1, "the fish has scales and fins"),      Of(2, "the tree has leaves and roots")};
}

TEST(Model, LearnsWhatItIsShown) {
  Model model(kBits, kClasses);
  const std::vector<Example> examples = Animals();
  const double before = model.Accuracy(examples);
  for (int step = 0; step < 50; ++step) {
    std::vector<float> gradient(model.parameters());
    for (const Example& example : examples) model.AddGradient(example, gradient);
    model.Step(gradient, 1.0f);
  }
  EXPECT_LT(before, 0.5);  // all weights zero: always the first class
  EXPECT_EQ(model.Accuracy(examples), 1.0);
}

// Of weights that are zero, the probabilities are 1/classes: the gradient is known outright.
TEST(Model, GradientIsErrorTimesFeature) {
  const Model model(kBits, kClasses);
  const Example example = Of(1, "a herring");
  std::vector<float> gradient(model.parameters());
  model.AddGradient(example, gradient);
  size_t nonzero = 0;
  for (const float element : gradient) nonzero += element != 0;
  EXPECT_EQ(nonzero, example.features.size() * kClasses);
  for (const Feature& feature : example.features) {
    for (int c = 0; c < kClasses; ++c) {
      const float error = 1.0f / kClasses - (c == 1 ? 1 : 0);
      EXPECT_NEAR(gradient[feature.bucket * kClasses + c], error * feature.weight, 1e-6);
    }
  }
}

TEST(Model, StepCountsNonzerosAndTheDigestFollowsTheBits) {
  Model one(kBits, kClasses), other(kBits, kClasses);
  EXPECT_EQ(one.Digest(), other.Digest());
  std::vector<float> gradient(one.parameters());
  gradient[3] = 0.5f;
  gradient[70] = -0.25f;
  EXPECT_EQ(one.Step(gradient, 1.0f), 2u);
  EXPECT_NE(one.Digest(), other.Digest());
  other.Step(gradient, 1.0f);
  EXPECT_EQ(one.Digest(), other.Digest());
}

// The reason for the grid: sums of what lies on it do not depend on their order.
TEST(GradientGrid, MakesSumsExactInAnyOrder) {
  std::mt19937 random(5);
  for (const int examples : {1, 2, 3, 8, 32, 33, 512}) {
    const float grid = GradientGrid(examples);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<float> values;
      double exact = 0;
      for (int i = 0; i < examples; ++i) {
        values.push_back(std::nearbyint(uniform(random) / grid) * grid);
        exact += values.back();
      }
      float forward = 0, backward = 0;
      for (int i = 0; i < examples; ++i) {
        forward += values[i];
        backward += values[examples - 1 - i];
      }
      EXPECT_EQ(forward, backward);
      EXPECT_EQ(forward, exact);
    }
    EXPECT_LE(grid, 1.0f / 8192);  // small beside a gradient
  }
}

}  // namespace
}  // namespace classifier
