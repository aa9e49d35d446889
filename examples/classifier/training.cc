#include "examples/classifier/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace classifier {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

absl::Status Check(spcclResult_t result, spcclComm_t comm) {
  if (result == spcclSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(spcclGetErrorString(result), ": ", spcclGetLastError(comm)));
}

// Zero-filled.
absl::StatusOr<std::span<float>> AllocateShared(size_t elements) {
  void* memory = nullptr;
  const absl::Status status = Check(spcclMemAlloc(&memory, elements * sizeof(float)), nullptr);
  if (!status.ok()) return status;
  return std::span<float>(static_cast<float*>(memory), elements);
}

}  // namespace

float GradientGrid(int examples) {
  const int bits = static_cast<int>(std::ceil(std::log2(examples)));
  return std::ldexp(1.0f, bits - 23);
}

absl::StatusOr<Rank> Rank::Join(const spcclUniqueId& id, int number, int ranks, size_t parameters) {
  Rank rank(number, ranks);
  absl::Status status = Check(spcclCommInitRank(&rank.comm_, ranks, id, number), nullptr);
  if (!status.ok()) return status;
  for (std::span<float>* buffer : {&rank.gradient_, &rank.sum_}) {
    absl::StatusOr<std::span<float>> memory = AllocateShared(parameters);
    if (!memory.ok()) return memory.status();
    *buffer = *memory;
  }
  return rank;
}

Rank::Rank(Rank&& other) noexcept
    : rank_(other.rank_),
      ranks_(other.ranks_),
      comm_(std::exchange(other.comm_, nullptr)),
      gradient_(std::exchange(other.gradient_, {})),
      sum_(std::exchange(other.sum_, {})) {}

Rank::~Rank() {
  if (comm_ != nullptr) spcclCommDestroy(comm_);
  spcclMemFree(gradient_.data());
  spcclMemFree(sum_.data());
}

absl::Status Rank::Train(Model& model, std::span<const Example> examples, const Schedule& schedule,
                         std::vector<StepTime>* times) {
  const size_t together = static_cast<size_t>(schedule.batch) * ranks_;
  const size_t steps = examples.size() / together;  // an epoch's last, partial step is left out
  const float grid = GradientGrid(static_cast<int>(together));
  for (int epoch = 0; epoch < schedule.epochs; ++epoch) {
    for (size_t step = 0; step < steps; ++step) {
      const auto begin = Clock::now();
      const auto batch = examples.subspan(step * together + schedule.batch * rank_, schedule.batch);
      const size_t nonzero = ComputeGradient(model, batch, grid);

      const auto computed = Clock::now();
      const spcclResult_t result = spcclAllReduce(gradient_.data(), sum_.data(), sum_.size(),
                                                  spcclFloat32, spcclSum, comm_, nullptr);
      if (result != spcclSuccess) return Check(result, comm_);

      const auto reduced = Clock::now();
      const size_t sum_nonzero = model.Step(sum_, schedule.rate / static_cast<float>(together));
      times->push_back({.whole_us = MicrosBetween(begin, Clock::now()),
                        .all_reduce_us = MicrosBetween(computed, reduced),
                        .nonzero = static_cast<double>(nonzero),
                        .sum_nonzero = static_cast<double>(sum_nonzero)});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Rank::Agrees(uint64_t number) {
  uint64_t least = 0, most = 0;
  absl::Status status =
      Check(spcclAllReduce(&number, &least, 1, spcclUint64, spcclMin, comm_, nullptr), comm_);
  if (!status.ok()) return status;
  status = Check(spcclAllReduce(&number, &most, 1, spcclUint64, spcclMax, comm_, nullptr), comm_);
  if (!status.ok()) return status;
  return least == most;
}

size_t Rank::ComputeGradient(const Model& model, std::span<const Example> batch, float grid) {
  std::fill(gradient_.begin(), gradient_.end(), 0.0f);
  for (const Example& example : batch) model.AddGradient(example, gradient_);
  size_t nonzero = 0;
  for (float& element : gradient_) {
    if (element == 0) continue;
    element = std::nearbyint(element / grid) * grid;  // exact but for the rounding: grid is 2^-n
    nonzero += element != 0;
  }
  return nonzero;
}

}  // namespace classifier
