#include "collective/runtime/task.h"

namespace spccl::runtime {
namespace {

template <size_t N>
void AddTo(std::array<uint64_t, N>* sums, const std::array<uint64_t, N>& more) {
  for (size_t i = 0; i < N; ++i) (*sums)[i] += more[i];
}

void AddStep(SendStepStats* sum, const SendStepStats& more) {
  sum->phase = more.phase;
  sum->link = more.link;
  AddTo(&sum->decisions, more.decisions);
  sum->sparsity_sum += more.sparsity_sum;
  sum->sparsity_count += more.sparsity_count;
  if (more.threshold != 0) sum->threshold = more.threshold;
  sum->wire_bytes += more.wire_bytes;
  sum->dense_bytes += more.dense_bytes;
  AddTo(&sum->formats, more.formats);
  AddTo(&sum->runners_up, more.runners_up);
  sum->forecasts += more.forecasts;
  sum->predicted_ns += more.predicted_ns;
  sum->runner_up_ns += more.runner_up_ns;
  sum->predicted_encode_ns += more.predicted_encode_ns;
  sum->predicted_wire_ns += more.predicted_wire_ns;
  sum->encode_ns += more.encode_ns;
  sum->wire_ns += more.wire_ns;
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
  AddTo(&wire_bytes_by_link, other.wire_bytes_by_link);
  input_nnz += other.input_nnz;
  input_elements += other.input_elements;
  result_nnz += other.result_nnz;
  result_elements += other.result_elements;
  if (send_steps.size() < other.send_steps.size()) send_steps.resize(other.send_steps.size());
  for (size_t i = 0; i < other.send_steps.size(); ++i) AddStep(&send_steps[i], other.send_steps[i]);
  host_path_bytes += other.host_path_bytes;
  encode_ns += other.encode_ns;
  send_ns += other.send_ns;
  reduce_ns += other.reduce_ns;
  receive_wait_ns += other.receive_wait_ns;
  room_wait_ns += other.room_wait_ns;
  for (size_t format = 0; format < kFormatCount; ++format) {
    encoded[format].Add(other.encoded[format]);
    taken_in[format].Add(other.taken_in[format]);
  }
}

}  // namespace spccl::runtime
