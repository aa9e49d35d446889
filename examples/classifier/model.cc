#include "examples/classifier/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace classifier {

Model::Model(int bucket_bits, int classes)
    : classes_(classes), weights_((size_t{1} << bucket_bits) * classes) {}

std::vector<float> Model::Probabilities(const std::vector<Feature>& features) const {
  std::vector<float> scores(classes_);
  for (const Feature& feature : features) {
    const float* const row = &weights_[size_t{feature.bucket} * classes_];
    for (int c = 0; c < classes_; ++c) scores[c] += feature.weight * row[c];
  }
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - largest);
  for (float& score : scores) score /= sum;
  return scores;
}

int Model::Predict(const std::vector<Feature>& features) const {
  const std::vector<float> probabilities = Probabilities(features);
  return static_cast<int>(std::max_element(probabilities.begin(), probabilities.end()) -
                          probabilities.begin());
}

double Model::Accuracy(std::span<const Example> examples) const {
  const auto right = std::count_if(
      examples.begin(), examples.end(),
      [this](const Example& example) { return Predict(example.features) == example.label; });
  return static_cast<double>(right) / static_cast<double>(examples.size());
}

void Model::AddGradient(const Example& example, std::span<float> gradient) const {
  std::vector<float> error = Probabilities(example.features);
  error[example.label] -= 1;
  for (const Feature& feature : example.features) {
    float* const row = &gradient[size_t{feature.bucket} * classes_];
    for (int c = 0; c < classes_; ++c) row[c] += feature.weight * error[c];
  }
}

size_t Model::Step(std::span<const float> gradient, float rate) {
  size_t nonzero = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (gradient[i] == 0) continue;
    weights_[i] -= rate * gradient[i];
    ++nonzero;
  }
  return nonzero;
}

uint64_t Model::Digest() const {
  uint64_t digest = weights_.size();
  for (const float weight : weights_) {
    uint32_t bits;
    std::memcpy(&bits, &weight, sizeof(bits));
    digest = (digest ^ bits) * 0x9e3779b97f4a7c15;
    digest ^= digest >> 32;
  }
  return digest;
}

}  // namespace classifier
