// The last operations of one communicator, as the core thread puts them down when they end. Nothing
// is allocated after Open().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collective/op.h"
#include "collective/runtime/task.h"

namespace spccl::daemon {

// Times are MonotonicNanos().
struct FlightEntry {
  uint64_t sequence = 0;
  uint64_t operation = 0;  // its name in spans: runtime::Task::operation()
  OpDesc op;
  std::string algorithm;
  std::vector<int64_t> posted_ns;  // by place in the communicator's local ranks
  int64_t began_ns = 0, ended_ns = 0;
  absl::Status status;
  // As in runtime::OpStats.
  uint64_t dense_bytes = 0, wire_bytes = 0;
  std::array<uint64_t, kFormatCount> sends_by_format{};
  uint64_t input_nnz = 0, input_elements = 0, result_nnz = 0, result_elements = 0;
  uint64_t encode_ns = 0, send_ns = 0, reduce_ns = 0, receive_wait_ns = 0, room_wait_ns = 0;

  void TakeStats(const runtime::OpStats& stats);
};

class FlightLog {
 public:
  // Room for the last `operations` of a communicator with `local_ranks` here; 0: keeps none.
  void Open(size_t operations, size_t local_ranks);

  // The place of the next operation that has ended, with what the one that was there before has
  // left behind; nullptr: none is kept.
  FlightEntry* Next();

  // Oldest first. Valid until the next Next().
  std::vector<const FlightEntry*> Entries() const;

 private:
  std::vector<FlightEntry> entries_;
  uint64_t written_ = 0;
};

}  // namespace spccl::daemon
