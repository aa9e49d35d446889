// A document as numbers: its character trigrams, hashed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace classifier {

struct Feature {
  uint32_t bucket;
  float weight;
};

// Each run of three characters (case folded, white space folded to one blank) is hashed into one of
// 2^bucket_bits buckets. A bucket weighs log(1 + how often it was hit); the whole has length 1.
// Sorted by bucket; buckets that are not named weigh nothing.
std::vector<Feature> HashTrigrams(const std::string& text, int bucket_bits);

}  // namespace classifier
