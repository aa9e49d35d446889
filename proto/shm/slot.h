// The slots of a session's two rings, and the layout of the segment that holds them.
//
// Fixed widths, offsets only, sizes asserted. The daemon trusts no field of a Submission.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/shm/ring.h"

namespace spccl::shm {

inline constexpr uint32_t kSegmentMagic = 0x53504353;  // "SCPS"
inline constexpr uint32_t kShmVersion = 4;
inline constexpr uint32_t kSubmissionCapacity = 256;
// A client may have at most this many operations submitted and not yet reaped; the daemon counts,
// so that a completion always finds room and the daemon never waits for a client.
inline constexpr uint32_t kCompletionCapacity = 256;

// Memory of one operation: `buffer_id` names a registered buffer and `offset` is in bytes from its
// start; with buffer_id 0 (kRawAddress) `offset` is an address in the client's own memory, which
// the daemon reaches by cross-memory attach.
inline constexpr uint64_t kRawAddress = 0;
struct BufferRef {
  uint64_t buffer_id;
  uint64_t offset;
};

// One collective operation of one rank.
struct Submission {
  uint64_t ticket;   // chosen by the client, unique in the session; the completion repeats it
  uint32_t comm_id;  // from the session's CommInit reply
  uint8_t op;        // OpKind
  uint8_t dtype;     // DType
  uint8_t redop;     // RedOp; 0 where nothing is reduced
  uint8_t reserved;  // 0
  // Position of the operation in this rank's order of calls on the communicator: 0, 1, 2, ...
  // Matches operations across ranks; a number used twice or too far ahead ends the session.
  uint64_t sequence;
  uint64_t count;      // elements, as in NCCL's signature of the operation
  uint32_t root;       // broadcast and scatter only, else 0
  uint32_t reserved2;  // 0
  BufferRef send;
  BufferRef recv;
  uint64_t relay;  // all-reduce: 1 if it may pass through the communicator's relays (relay.h)
  // GPU memory: the slot of the session's order memory (order.h) plus 1, and the value of this use;
  // 0: host memory.
  uint32_t order_slot;
  uint32_t order_value;
  uint64_t reserved3[5];
};
static_assert(sizeof(Submission) == 128);

// The end of one operation, or its failure. Every accepted submission gets exactly one.
struct Completion {
  uint64_t ticket;
  uint32_t result;  // spcclResult_t
  uint32_t comm_id;
  char message[240];  // NUL-terminated; empty on success
};
static_assert(sizeof(Completion) == 256);

// The segment: one memfd a session, made and sealed by the daemon, passed to the client.
struct Segment {
  uint32_t magic;
  uint32_t version;
  uint32_t submission_capacity;
  uint32_t completion_capacity;
  uint64_t reserved[6];
  RingControl submission_control;
  RingControl completion_control;
  Submission submissions[kSubmissionCapacity];
  Completion completions[kCompletionCapacity];
};
static_assert(sizeof(Segment) == 64 + 2 * 128 + 256 * 128 + 256 * 256);
static_assert(offsetof(Segment, submissions) % 64 == 0);

}  // namespace spccl::shm
