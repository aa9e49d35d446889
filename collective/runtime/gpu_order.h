// How an operation on GPU memory is ordered with the stream that a rank called it on.
//
// Two 32-bit words in memory that the client, the daemon and the GPUs share (proto/shm/order.h).
// The rank's stream writes `ready` and then waits for `done`. A stream of the daemon's waits for
// `ready`, or, where too many wait already, its CPU asks for it now and then; no work that touches
// the rank's buffers is enqueued before that is over. When all of it has ended, the CPU stores
// `done` (docs/adr/0020). No thread is held up by any of this. Whoever survives can release the
// other: every word is host memory that the CPU can store to.
#pragma once

#include <atomic>
#include <cstdint>

namespace spccl::runtime {

// What a CPU writes to a counting `ready` whose rank's stream has not got there: the value plus
// this, which lets through whoever waits, and tells the rank's side that its stream is still to
// come.
inline constexpr uint32_t kReadyByCpu = uint32_t{1} << 30;

struct GpuOrder {
  // As the GPUs' streams name the words (cuda::DevicePtr), and as this process does. The owner of
  // the memory outlives the operation.
  uint64_t ready_pointer = 0, done_pointer = 0;
  std::atomic<uint32_t>* ready = nullptr;
  std::atomic<uint32_t>* done = nullptr;
  // Counting words: wait until (int32_t)(*ready - value) >= 0; at the end the CPU stores `value` to
  // done. With `resets`, which is for CUDA graphs that are replayed with the same words: wait until
  // *ready == value, and the CPU stores 0 to it at once; the rank's stream takes done back to 0.
  uint32_t value = 0;
  bool resets = false;

  // By the CPU, the first time only: after that the rank's stream may have taken the word back, and
  // the next replay would take the same value for its own. Release: after what was written for it.
  void WriteDone() const {
    if (!is_done.exchange(true, std::memory_order_acq_rel)) {
      done->store(value, std::memory_order_release);
    }
  }
  mutable std::atomic<bool> is_done{false};
};

}  // namespace spccl::runtime
