// Data-parallel SGD: what one rank does, with spccl for what all must agree on.
#pragma once

#include <spccl/spccl.h>

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/classifier/model.h"

namespace classifier {

struct Schedule {
  int epochs;
  int batch;   // examples that one rank looks at in a step
  float rate;  // of learning, for the mean gradient of a step's examples
};

// What was seen in one step, by one rank.
struct StepTime {
  double whole_us;
  double all_reduce_us;
  double nonzero;      // elements of the rank's own gradient
  double sum_nonzero;  // elements of the sum
};

// This process's membership, and a gradient that the daemon can read in place.
class Rank {
 public:
  // Joins rank `rank` of `ranks` to the communicator `id`; returns when all have.
  static absl::StatusOr<Rank> Join(const spcclUniqueId& id, int rank, int ranks, size_t parameters);
  Rank(Rank&& other) noexcept;
  Rank& operator=(Rank&&) = delete;
  ~Rank();

  // Trains `model` on the rank's share of `examples`; all ranks end with the same weights.
  absl::Status Train(Model& model, std::span<const Example> examples, const Schedule& schedule,
                     std::vector<StepTime>* times);
  // Whether all ranks have this number. Collective.
  absl::StatusOr<bool> Agrees(uint64_t number);

 private:
  Rank(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  // Fills gradient_ from a batch, rounded to `grid`; returns its nonzero elements.
  size_t ComputeGradient(const Model& model, std::span<const Example> batch, float grid);

  const int rank_, ranks_;
  spcclComm_t comm_ = nullptr;
  std::span<float> gradient_, sum_;  // from spcclMemAlloc
};

// The distance between the values that a gradient is rounded to: a power of two, small enough not
// to matter to the training, and large enough that the sum of `examples` gradients of elements no
// greater than 1 needs no more than float32's 24 bits. So sums are exact, whatever their order, and
// every plan must give the same bits.
float GradientGrid(int examples);

}  // namespace classifier
