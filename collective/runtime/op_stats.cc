#include "collective/runtime/task.h"

namespace spccl::runtime {
namespace {

template <size_t N>
void AddTo(std::array<uint64_t, N>* sums, const std::array<uint64_t, N>& more) {
  for (size_t i = 0; i < N; ++i) (*sums)[i] += more[i];
}

}  // namespace

void OpStats::Add(const OpStats& other) {
  dense_bytes += other.dense_bytes;
  wire_bytes += other.wire_bytes;
  AddTo(&sends_by_format, other.sends_by_format);
  for (size_t phase = 0; phase < decisions.size(); ++phase) {
    AddTo(&decisions[phase], other.decisions[phase]);
  }
  AddTo(&sends_by_link, other.sends_by_link);
  input_nnz += other.input_nnz;
  input_elements += other.input_elements;
  result_nnz += other.result_nnz;
  result_elements += other.result_elements;
}

}  // namespace spccl::runtime
