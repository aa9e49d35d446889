// Words that order operations on GPU memory: between the stream that a rank calls an operation on
// and the daemon. Shared memory, made and sealed by the daemon, one a session, registered with the
// driver by both sides. The rank's stream writes `ready` and waits for `done`
// (cuStreamWriteValue32, cuStreamWaitValue32); of memory that is copied a host function of that
// stream stores `ready`. The daemon waits for `ready` on a stream, or its CPU asks for it, and its
// CPU stores `done` when its GPUs' work has ended (docs/adr/0020). Where one side has died or
// given up, the CPU of the other stores its word.
//
// An operation names one slot (Submission::order_slot). Slots below kEagerSlots count: the client
// gives each use of a slot a value one above the last, the stream of the rank writes it to `ready`
// and waits until `done` has reached it. A slot may be used again once its operation has completed;
// after an error, once its stream has also written `ready`: where the daemon has let itself through
// instead, `ready` is the value plus kReadyByCpu until then.
// The others are for operations that were captured in a CUDA graph, one slot each for as long as
// the graph lives: the value is always 1, the daemon's CPU takes `ready` back to 0 when it has seen
// it, before anything else, and the rank's stream takes `done` back, so that a replay finds the
// slot as the capture did.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spccl::shm {

inline constexpr uint32_t kEagerSlots = 256;  // as many as a session has operations outstanding
inline constexpr uint32_t kCapturedSlots = 1024;
inline constexpr uint32_t kOrderSlots = kEagerSlots + kCapturedSlots;
inline constexpr uint32_t kNoOrder = UINT32_MAX;
inline constexpr uint32_t kReadyByCpu = uint32_t{1} << 30;  // as in collective/runtime/gpu_order.h

// A line each, so that one side's writes do not take the other's line away.
struct OrderSlot {
  std::atomic<uint32_t> ready;
  uint32_t reserved[15];
  std::atomic<uint32_t> done;
  uint32_t reserved2[15];
};
static_assert(sizeof(OrderSlot) == 128);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct OrderMemory {
  OrderSlot slots[kOrderSlots];
};
static_assert(offsetof(OrderSlot, done) == 64);

}  // namespace spccl::shm
