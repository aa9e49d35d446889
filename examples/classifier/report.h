// What the comparison has shown, for people or for programs.
#pragma once

#include <string>
#include <vector>

#include "examples/classifier/comparison.h"

namespace classifier {

// Whether every rank of every training ended with the same weights, bit by bit.
bool SameWeights(const std::vector<Outcome>& outcomes);

// `outcomes`: at least one; the first is what the others are compared with.
std::string Text(const Corpus& corpus, const Settings& settings,
                 const std::vector<Outcome>& outcomes);
std::string Json(const Corpus& corpus, const Settings& settings,
                 const std::vector<Outcome>& outcomes);

}  // namespace classifier
