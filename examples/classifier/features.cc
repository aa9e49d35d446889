#include "examples/classifier/features.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace classifier {
namespace {

std::string Fold(const std::string& text) {
  std::string folded;
  folded.reserve(text.size());
  for (const unsigned char character : text) {
    if (std::isspace(character) == 0) {
      folded.push_back(static_cast<char>(std::tolower(character)));
    } else if (!folded.empty() && folded.back() != ' ') {
      folded.push_back(' ');
    }
  }
  return folded;
}

// Fibonacci hashing: the upper bits of a product with 2^32 over the golden ratio.
uint32_t Bucket(uint32_t trigram, int bits) {
  return (trigram * 2654435769u) >> (32 - bits);
}

}  // namespace

std::vector<Feature> HashTrigrams(const std::string& text, int bucket_bits) {
  const std::string folded = Fold(text);
  std::vector<uint32_t> hits;
  uint32_t trigram = 0;
  for (size_t i = 0; i < folded.size(); ++i) {
    trigram = (trigram << 8 | static_cast<unsigned char>(folded[i])) & 0xffffff;
    if (i >= 2) hits.push_back(Bucket(trigram, bucket_bits));
  }
  std::sort(hits.begin(), hits.end());

  std::vector<Feature> features;
  double squares = 0;
  for (auto first = hits.begin(); first != hits.end();) {
    const auto last = std::upper_bound(first, hits.end(), *first);
    const double weight = std::log1p(static_cast<double>(last - first));
    features.push_back({.bucket = *first, .weight = static_cast<float>(weight)});
    squares += weight * weight;
    first = last;
  }
  for (Feature& feature : features) feature.weight /= static_cast<float>(std::sqrt(squares));
  return features;
}

}  // namespace classifier
