// Whether a submission slot that a client wrote may be run. Pure; trusts no field.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "collective/op.h"
#include "proto/shm/slot.h"

namespace spccl::daemon {

// What the check may ask about the session that the slot came from.
struct MemberView {
  uint32_t ranks;
  uint32_t rank;
  bool has_relays;  // its relays have been asked for
};
struct BufferView {
  uint64_t size_bytes;
  uint64_t memory_id;  // equal for buffers that are the same memory
  bool mapped;         // shared with the daemon; else the client's own memory, or a GPU's
  bool on_gpu = false;
};
struct SessionView {
  absl::FunctionRef<std::optional<MemberView>(uint32_t comm_id)> member;
  absl::FunctionRef<std::optional<BufferView>(uint64_t buffer_id)> buffer;
  bool has_order = false;  // its order memory has been asked for
  bool attach_possible;  // the client has handed over its memory, so that raw addresses make sense
};

// Who is to blame for a slot that cannot be run.
enum class SlotFault : uint8_t {
  kNone,
  kCaller,   // an argument is wrong: the operation completes with an error
  kCorrupt,  // no correct client writes this: the session ends
};

struct SlotCheck {
  SlotFault fault = SlotFault::kNone;
  absl::Status status;
  OpDesc op;  // valid unless the fault is in op, dtype or redop themselves
};

// Checks all but `sequence` (which the communicator checks) and `ticket` (which only the client
// uses). With fault kNone both ranges lie within their buffers, or do not wrap where the address is
// raw, and overlap only as NCCL's in-place rules allow; a rank's unused send buffer (broadcast, not
// the root) is not looked at. Relays are offered only where there are some. Where one buffer is a
// GPU's both are, and then, or with copies of such in mapped memory, a slot of the order memory is
// named.
SlotCheck CheckSubmission(const shm::Submission& slot, const SessionView& session);

}  // namespace spccl::daemon
