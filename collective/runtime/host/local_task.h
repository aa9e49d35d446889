// The local plan: one pass over the ranks' inputs, results written to every output. No frames.
#pragma once

#include <mutex>
#include <vector>

#include "collective/op.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/slice_gate.h"
#include "collective/runtime/task.h"

namespace spccl::runtime {

// The work is the result's elements in a row (all ranks' shares one after the other where each rank
// has its own), cut into slices of `slice_bytes` that threads claim from a counter; no two slices
// touch the same byte, so that nothing waits. Mapped buffers are read and written where they are;
// remote ones pass through the thread's scratch, piece by piece, so that a piece stays in the L2
// cache and every input is read and every output written once.
//
// OpStats stay zero: nothing is sent.
class LocalTask final : public Task {
 public:
  // At most kMaxLocalRanks ranks. slice_bytes 0: chosen by measurement (see local_task.cc).
  LocalTask(const OpDesc& op, std::vector<RankBuffers> ranks, size_t slice_bytes, DoneFn done);

  Progress RunOne(Scratch scratch) override;
  void Cancel(absl::Status reason, int culprit_rank) override;
  TaskLook Look() override;

 private:
  struct Piece;

  uint64_t WorkElements() const;
  void RunSlice(uint64_t slice, Scratch scratch);
  // Fills `piece` with the buffers behind `elements` work elements from `first` on; may take fewer,
  // up to the end of a rank's share. Returns how many.
  uint64_t PieceAt(uint64_t first, uint64_t elements, Piece* piece) const;
  bool RunPiece(const Piece& piece, uint64_t elements, Scratch scratch);
  bool RunPart(const Piece& piece, uint64_t skip_bytes, uint64_t elements, size_t slot_bytes,
               Scratch scratch);
  bool WriteRemote(const Piece& piece, uint64_t skip_bytes, const void* result, size_t bytes);
  // To the ring of this thread, where its slices are timed.
  void WriteSpan(uint64_t slice) const;
  void Fail(absl::Status status, int culprit_rank);
  void Finish();

  const OpDesc op_;
  const std::vector<RankBuffers> ranks_;
  const uint64_t slice_elements_;
  const bool streaming_;
  SliceGate gate_;
  DoneFn done_;

  std::mutex mutex_;  // guards result_ until the gate's last end
  OpResult result_;
};

inline constexpr uint32_t kMaxLocalRanks = 1024;

}  // namespace spccl::runtime
