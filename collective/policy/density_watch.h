// When operations have become so much sparser or denser that plans should be chosen anew, which all
// nodes must agree on: not for the noise of few nonzeros, and not again and again for a program
// whose operations take turns. Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace spccl::policy {

// Of a communicator's operations of one kind. Copyable, not thread-safe.
class DensityWatch {
 public:
  // What differs by less is the same.
  static constexpr double kFactor = 1.5;
  // So many operations in a row must have the same density before it is news: one at first, and
  // twice as many each time that news was taken.
  static constexpr uint64_t kMostInARow = 64;

  // Of an operation's input; nothing is learned from one without elements.
  void Saw(uint64_t nnz, uint64_t elements);
  // The density of late, to one who takes it to be `known` so far.
  std::optional<double> News(double known) const;
  void Taken();

 private:
  double density() const { return static_cast<double>(nnz_) / static_cast<double>(elements_); }

  uint64_t nnz_ = 0, elements_ = 0;  // of the last operation
  uint64_t in_a_row_ = 0, wanted_ = 1;
};

}  // namespace spccl::policy
