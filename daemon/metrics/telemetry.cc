#include "daemon/metrics/telemetry.h"

#include <algorithm>

namespace spccl::daemon::metrics {
namespace {

double Seconds(int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

void AddDensity(uint64_t nnz, uint64_t elements, Histogram* densities) {
  if (elements == 0) return;
  densities->Observe(static_cast<double>(nnz) / static_cast<double>(elements));
}

// A code that this version of Abseil does not know counts as unknown.
size_t IndexOf(const absl::Status& status) {
  const auto code = static_cast<size_t>(status.code());
  return code < kCodeCount ? code : static_cast<size_t>(absl::StatusCode::kUnknown);
}

}  // namespace

void Telemetry::AddOperation(const OpDesc& op, const OpTimes& times,
                             const runtime::OpResult& result, uint64_t payload_bytes) {
  const runtime::OpStats& stats = result.stats;
  const auto kind = static_cast<size_t>(op.kind);
  OpTotals& totals = ops[kind][static_cast<size_t>(op.dtype)];
  if (result.status.ok()) {
    ++totals.ok;
    totals.payload_bytes += payload_bytes;
  } else {
    ++totals.failed;
    ++op_errors[IndexOf(result.status)];
  }
  gpu_host_path_bytes += stats.host_path_bytes;
  totals.dense_bytes += stats.dense_bytes;
  totals.wire_bytes += stats.wire_bytes;
  durations[kind].Observe(Seconds(times.ended_ns - times.began_ns));
  waits[static_cast<size_t>(Cause::kRanks)].Observe(
      Seconds(times.last_arrival_ns - times.first_arrival_ns));
  waits[static_cast<size_t>(Cause::kTurn)].Observe(
      Seconds(std::max<int64_t>(0, times.began_ns - times.last_arrival_ns)));
  if (stats.dense_bytes == 0) return;  // no frames
  for (size_t link = 0; link < policy::kLinkCount; ++link) {
    sends_by_link[link] += stats.sends_by_link[link];
    wire_bytes_by_link[link] += stats.wire_bytes_by_link[link];
  }
  for (size_t format = 0; format < kFormatCount; ++format) {
    encoded[format].Add(stats.encoded[format]);
    taken_in[format].Add(stats.taken_in[format]);
  }
  const uint64_t spent_ns[kOpPhaseCount] = {stats.encode_ns, stats.send_ns, stats.reduce_ns,
                                            stats.receive_wait_ns, stats.room_wait_ns};
  for (size_t i = 0; i < kOpPhaseCount; ++i) {
    phases[i].Observe(Seconds(static_cast<int64_t>(spent_ns[i])));
  }
  AddDensity(stats.input_nnz, stats.input_elements, &input_density);
  AddDensity(stats.result_nnz, stats.result_elements, &result_density);
}

void Telemetry::AddCommFailure(const absl::Status& status, uint64_t lost_ops) {
  ++comm_failures[IndexOf(status)];
  op_errors[IndexOf(status)] += lost_ops;
}

}  // namespace spccl::daemon::metrics
