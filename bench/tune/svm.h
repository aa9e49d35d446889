// A support vector machine with a radial kernel: libsvm (Chang and Lin, 2011), in a value.
#pragma once

#include <array>
#include <memory>
#include <vector>

namespace spccl::tune {

inline constexpr int kFeatures = 4;
using Features = std::array<double, kFeatures>;

class Svm {
 public:
  // C-classification. As many labels as rows, at least one; a single label needs no machine.
  // Training the same again gives the same.
  static Svm Train(const std::vector<Features>& rows, const std::vector<int>& labels, double c,
                   double gamma);
  int Predict(const Features& row) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace spccl::tune
