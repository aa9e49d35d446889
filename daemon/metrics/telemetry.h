// What the core adds up for the metrics. Sums since the daemon's start, by operation and type, so
// that they outlive communicators and jobs. Core thread only; nothing here waits or allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "collective/op.h"
#include "collective/policy/decision.h"
#include "collective/runtime/task.h"
#include "daemon/metrics/histogram.h"

namespace spccl::daemon::metrics {

// absl::StatusCode's values.
inline constexpr size_t kCodeCount = 17;

// When an operation of a communicator came along, in monotonic nanoseconds.
struct OpTimes {
  int64_t first_arrival_ns = 0, last_arrival_ns = 0;  // of this node's ranks
  int64_t began_ns = 0, ended_ns = 0;
};

struct OpTotals {
  uint64_t ok = 0, failed = 0;
  uint64_t payload_bytes = 0, dense_bytes = 0, wire_bytes = 0;
};

// What an operation waits for before data moves, but for a channel thread: that is the scheduler's.
enum class Cause : uint8_t { kRanks, kTurn };
inline constexpr size_t kCauseCount = 2;

// Where the time of an operation that sends frames goes.
inline constexpr size_t kOpPhaseCount = 5;
inline constexpr std::array<std::string_view, kOpPhaseCount> kOpPhaseNames = {
    "encode", "send", "reduce", "receive_wait", "room_wait"};

// What a job may be refused: see docs/operations.md, "Share a node".
enum class Quota : uint8_t { kBufferBytes, kCommunicators, kOperations };
inline constexpr size_t kQuotaCount = 3;
constexpr std::string_view NameOf(Quota quota) {
  constexpr std::string_view kNames[kQuotaCount] = {"buffer_bytes", "communicators", "operations"};
  return kNames[static_cast<size_t>(quota)];
}

struct Telemetry {
  std::array<std::array<OpTotals, kDTypeCount>, kOpKindCount> ops{};
  std::array<uint64_t, kCodeCount> op_errors{}, comm_failures{};  // by absl::StatusCode
  std::array<uint64_t, policy::kLinkCount> sends_by_link{}, wire_bytes_by_link{};
  std::array<runtime::CodecWork, kFormatCount> encoded{}, taken_in{};
  uint64_t gpu_host_path_bytes = 0;
  uint64_t broken_sessions = 0;
  std::array<uint64_t, kQuotaCount> quota_refusals{};
  std::array<Histogram, kOpKindCount> durations = AllOf<kOpKindCount>(kSecondsBounds);
  std::array<Histogram, kCauseCount> waits = AllOf<kCauseCount>(kSecondsBounds);
  std::array<Histogram, kOpPhaseCount> phases = AllOf<kOpPhaseCount>(kSecondsBounds);
  Histogram input_density{kDensityBounds}, result_density{kDensityBounds};

  // An operation has ended. `payload_bytes`: of this node's ranks' inputs.
  void AddOperation(const OpDesc& op, const OpTimes& times, const runtime::OpResult& result,
                    uint64_t payload_bytes);
  // A communicator has failed, and with it `lost_ops` that had not started.
  void AddCommFailure(const absl::Status& status, uint64_t lost_ops);

 private:
  template <size_t N>
  static constexpr std::array<Histogram, N> AllOf(std::span<const double> bounds) {
    return [bounds]<size_t... I>(std::index_sequence<I...>) {
      return std::array<Histogram, N>{((void)I, Histogram(bounds))...};
    }
    (std::make_index_sequence<N>());
  }
};

}  // namespace spccl::daemon::metrics
