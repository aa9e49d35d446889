// The host's part of an all-reduce over GPUs: slices go down to pinned memory, channel threads
// reduce them, and the result goes up. docs/adr/0022-multipath.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "collective/op.h"
#include "collective/runtime/cuda/coroutine.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/task.h"
#include "collective/transport/frame_pool.h"

namespace spccl::runtime {

// Elements first to op.count of the ranks' buffers, which are all on GPUs. As a task it is what
// channel threads run: pieces of slices that have come down, all else leads itself. Keep it in a
// shared_ptr. Thread-safe.
class HostRail final : public Task, public std::enable_shared_from_this<HostRail> {
 public:
  // `op`: an all-reduce. `home`: on whose issuing thread slices are led, and `done` is called,
  // unless Start or Cancel does.
  HostRail(Gpus& gpus, Gpu& home, const OpDesc& op, std::span<const RankBuffers> ranks,
           uint64_t first, size_t slice_bytes, DoneFn done);

  // Pinned memory for all that it does, or for less of it at a time: what is kept, and little that
  // is new. Waits for no GPU. After an error it can only be cancelled. Before Begin, and not while
  // another thread may cancel it.
  absl::Status TakeMemory();
  // The ranks' buffers may be touched. After a Cancel it does nothing.
  void Begin();

  // A piece of a slice.
  Progress RunOne(Scratch scratch) override;
  // Starts nothing more; what is under way ends first. Before Begin: DoneFn comes from within.
  void Cancel(absl::Status reason, int culprit_rank) override;
  TaskLook Look() override;

  // Whether some was left for the next one to pin. After TakeMemory.
  bool warms() const { return warms_; }

  uint64_t bytes() const { return (op_.count - first_) * width_; }

 private:
  // What one slice at a time takes on its way.
  struct Slot {
    std::vector<transport::Frame> inputs;  // by rank; the first one's is the result's, too
    uint64_t first = 0, elements = 0;      // of its slice
  };
  struct Piece {
    const Slot* slot = nullptr;
    uint64_t first = 0, elements = 0;  // of the slice
    std::shared_ptr<Join> join;
  };

  // `made`: frames that were pinned for it are added.
  absl::StatusOr<Slot> TakeSlot(size_t* made);
  Detached Lead(std::shared_ptr<HostRail> self, Slot* slot);
  bool NextSlice(Slot* slot);
  std::shared_ptr<Join> StartCopies(const Slot& slot, Gpu::Way way);
  std::shared_ptr<Join> QueuePieces(const Slot& slot);
  void RunPiece(const Piece& piece);
  void Fail(absl::Status status, int culprit_rank);
  // Its frames are given back, or kept for good where a broken GPU may still write to them.
  void EndSlot(Slot* slot, bool copies_ended);
  bool AllGpusWork() const;
  void End();

  Gpus& gpus_;
  Gpu& home_;
  const OpDesc op_;
  const std::vector<RankBuffers> ranks_;
  const std::vector<int> used_;  // GPUs
  const uint64_t width_;
  const uint64_t first_;
  const uint64_t slice_elements_, piece_elements_;
  std::vector<Slot> slots_;  // the home thread's, once started
  bool warms_ = false;

  std::mutex mutex_;
  DoneFn done_;
  OpResult result_;
  std::deque<Piece> pieces_;  // to be reduced
  uint64_t next_ = 0;         // the next slice's first element
  uint64_t pieces_done_ = 0, slices_done_ = 0;
  size_t leading_ = 0;  // slots under way
  bool started_ = false, failed_ = false, ended_ = false;
};

}  // namespace spccl::runtime
