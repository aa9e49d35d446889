// A running operation, cut into slices that channel threads work off.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "collective/phase.h"
#include "collective/policy/decision.h"
#include "collective/runtime/send_step.h"
#include "kernels/format.h"

namespace spccl::runtime {

// What codecs have done: bytes of dense data, and the time of all threads together.
struct CodecWork {
  uint64_t dense_bytes = 0, ns = 0;

  void Add(const CodecWork& other) {
    dense_bytes += other.dense_bytes;
    ns += other.ns;
  }
};

// What an operation did, for the telemetry. All zero where nothing was sent as a frame, as in the
// local plan.
struct OpStats {
  uint64_t dense_bytes = 0;  // what the sends would have been, all dense
  uint64_t wire_bytes = 0;   // what they were, headers included
  std::array<uint64_t, kFormatCount> sends_by_format{};
  // The decision on each send, counted by phase and reason, and the sends by link.
  std::array<std::array<uint64_t, policy::kReasonCount>, kPhaseCount> decisions{};
  std::array<uint64_t, policy::kLinkCount> sends_by_link{};
  std::array<uint64_t, policy::kLinkCount> wire_bytes_by_link{};
  uint64_t input_nnz = 0, input_elements = 0;    // of what was counted while compressing inputs
  uint64_t result_nnz = 0, result_elements = 0;  // of what was counted in results
  std::vector<SendStepStats> send_steps;         // by ordinal
  // Of the buffers of GPUs, what went over the host beside their links (docs/adr/0022).
  uint64_t host_path_bytes = 0;
  // Where the time went, all threads together: deciding and encoding; handing to the transport;
  // reducing, decoding and storing; and participants that could go on but for a frame, or but for
  // room on a link.
  uint64_t encode_ns = 0, send_ns = 0, reduce_ns = 0;
  uint64_t receive_wait_ns = 0, room_wait_ns = 0;
  // Of these, by the frame's format: making frames, also such as were no smaller and not sent; and
  // taking them in, which is combining with what is here, or decoding to where the result goes.
  std::array<CodecWork, kFormatCount> encoded{}, taken_in{};

  void Add(const OpStats& other);
};

struct OpResult {
  absl::Status status;
  int culprit_rank = -1;  // whose buffer or process failed the operation, -1 if nobody's
  OpStats stats;
};

// Called exactly once, by the thread that ended the operation's last slice (from within its RunOne,
// or from within Cancel when no slice was running), when no thread touches the operation's buffers
// any more.
using DoneFn = std::function<void(const OpResult&)>;

// Memory of one channel thread that a slice may use while it runs; 64-byte aligned.
inline constexpr size_t kScratchBytes = size_t{8} << 20;
using Scratch = std::span<std::byte>;

enum class Progress : uint8_t {
  kRan,   // did a slice; ask again
  kIdle,  // nothing can run now: all is claimed, or waits for other threads; the waker will be
          // called
  kDone,  // nothing is left to claim: drop the task from the queue (others may still run slices)
};

// What a running task does or waits for just now, for people who ask why it does not end.
struct TaskLook {
  // Rises with everything that the task does.
  uint64_t progress = 0;
  // Work that is claimed or done, in the task's own measure: slices, or lanes.
  uint64_t taken = 0, total = 0;
  enum class Doing : uint8_t {
    kWaitsForFrame,  // `rank` (a participant's lowest) for a frame of `peer`
    kWaitsForRoom,   // on the link from `rank` to `peer`
    kWaitsForSlice,  // for the process of `rank`, which works on ordinary memory itself
    kQueued,         // could run: no thread has taken it yet
    kRuns,           // a thread is at it
  };
  struct Line {
    Doing doing = Doing::kQueued;
    uint32_t rank = UINT32_MAX;  // UINT32_MAX: of all of this node, or of none
    uint32_t peer = UINT32_MAX;
    std::string_view step = {};  // what is next or runs: "reduce-store"
    uint64_t count = 0;          // of lanes that do this
    int64_t since_ns = 0;        // the longest of them: MonotonicNanos(); 0: not known
  };
  std::vector<Line> lines;
};

class Task {
 public:
  virtual ~Task() = default;

  // Names the operation in spans (span_ring.h). Before it runs.
  void SetOperation(uint64_t operation) { operation_ = operation; }
  uint64_t operation() const { return operation_; }

  // Whether it runs by itself, on GPUs: it is then started, once, and nobody calls RunOne but that
  // of ForChannels; its DoneFn is called by a thread of its own, or from within Start or Cancel,
  // and it may be let go from then on. Else channel threads run it, slice by slice.
  virtual bool RunsItself() const { return false; }
  virtual void Start() {}
  // What of a task that runs itself is for channel threads, to be queued for them before Start;
  // null: nothing. It ends when the task does, whether or not anybody runs it then.
  virtual std::shared_ptr<Task> ForChannels() { return nullptr; }

  // Claims and runs one slice. Thread-safe: several channel threads call it at once.
  virtual Progress RunOne(Scratch scratch) = 0;

  // Starts no further slice; when the running ones have ended, DoneFn gets `reason` and the
  // culprit. Thread-safe; after the end it does nothing.
  virtual void Cancel(absl::Status reason, int culprit_rank) = 0;

  // Somebody outside has done what the task may have been waiting for. Thread-safe.
  virtual void Nudge() {}

  // Thread-safe.
  virtual TaskLook Look() { return {}; }

  // Called when an idle task has something to run again. Set once, by whoever calls RunOne next: a
  // wake before that finds nobody, and is not needed.
  void SetWaker(std::function<void()> waker) {
    const std::lock_guard lock(waker_mutex_);
    waker_ = std::move(waker);
  }

 protected:
  void Wake() const {
    std::function<void()> waker;
    {
      const std::lock_guard lock(waker_mutex_);
      waker = waker_;
    }
    if (waker) waker();
  }

 private:
  uint64_t operation_ = 0;
  mutable std::mutex waker_mutex_;
  std::function<void()> waker_;
};

}  // namespace spccl::runtime
