#include "daemon/flight_log.h"

#include <algorithm>

namespace spccl::daemon {

namespace {
// Longer than the name of any algorithm, so that putting one down allocates nothing.
constexpr size_t kNameRoom = 32;
}  // namespace

void FlightEntry::TakeStats(const runtime::OpStats& stats) {
  dense_bytes = stats.dense_bytes;
  wire_bytes = stats.wire_bytes;
  sends_by_format = stats.sends_by_format;
  input_nnz = stats.input_nnz;
  input_elements = stats.input_elements;
  result_nnz = stats.result_nnz;
  result_elements = stats.result_elements;
  encode_ns = stats.encode_ns;
  send_ns = stats.send_ns;
  reduce_ns = stats.reduce_ns;
  receive_wait_ns = stats.receive_wait_ns;
  room_wait_ns = stats.room_wait_ns;
}

void FlightLog::Open(size_t operations, size_t local_ranks) {
  entries_.assign(operations, {});
  for (FlightEntry& entry : entries_) {
    entry.posted_ns.resize(local_ranks);
    entry.algorithm.reserve(kNameRoom);
  }
  written_ = 0;
}

FlightEntry* FlightLog::Next() {
  if (entries_.empty()) return nullptr;
  return &entries_[written_++ % entries_.size()];
}

std::vector<const FlightEntry*> FlightLog::Entries() const {
  std::vector<const FlightEntry*> entries;
  const uint64_t kept = std::min<uint64_t>(written_, entries_.size());
  for (uint64_t n = written_ - kept; n < written_; ++n) {
    entries.push_back(&entries_[n % entries_.size()]);
  }
  return entries;
}

}  // namespace spccl::daemon
