// Softmax regression: a weight for every (bucket, class).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "examples/classifier/features.h"

namespace classifier {

struct Example {
  int label;
  std::vector<Feature> features;
};

class Model {
 public:
  // All weights zero.
  Model(int bucket_bits, int classes);

  size_t parameters() const { return weights_.size(); }
  int Predict(const std::vector<Feature>& features) const;
  double Accuracy(std::span<const Example> examples) const;

  // Adds the gradient of the cross-entropy of `example` to `gradient`, an array of parameters()
  // elements. It is nonzero in the buckets of the example only: that is why it is sparse.
  void AddGradient(const Example& example, std::span<float> gradient) const;

  // Steps against the gradient and returns how many of its elements were not zero.
  size_t Step(std::span<const float> gradient, float rate);

  // Equal for equal weights, bit by bit.
  uint64_t Digest() const;

 private:
  // The probability of each class.
  std::vector<float> Probabilities(const std::vector<Feature>& features) const;

  const int classes_;
  std::vector<float> weights_;  // weights_[bucket * classes_ + class]
};

}  // namespace classifier
