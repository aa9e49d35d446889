// The daemon's end of a session's completion ring. Shared by the session and by every operation
// that still owes it a completion, so that a channel thread can complete without the core thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "absl/status/status.h"
#include "daemon/reaper.h"
#include "proto/shm/ring.h"
#include "proto/shm/slot.h"

namespace spccl::daemon {

// Thread-safe.
class CompletionPort {
 public:
  // Keeps the segment mapped.
  explicit CompletionPort(MappingRef segment);

  shm::Segment* segment() const { return segment_; }

  // Counts an operation that was submitted. False: the client has more operations submitted and not
  // reaped than the completion ring holds, or its index is impossible: only a broken client does
  // that.
  bool Admit();

  // Completes one admitted operation: pushes the result and wakes the client if it sleeps. After
  // Close() only counts. False if the client has broken its ring; the session must end.
  bool Complete(uint64_t ticket, uint32_t handle, const absl::Status& status);

  // The session has ended: nothing is written any more.
  void Close();

 private:
  const MappingRef mapping_;
  shm::Segment* const segment_;
  std::mutex mutex_;
  shm::Producer<shm::Completion> producer_;
  uint32_t in_flight_ = 0;
  bool closed_ = false;
};

}  // namespace spccl::daemon
