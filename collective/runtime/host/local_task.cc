#include "collective/runtime/host/local_task.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/runtime/span_ring.h"
#include "kernels/host/dense.h"

namespace spccl::runtime {
namespace {

// Small enough that several threads share an operation of a MiB, large enough that a claim costs
// nothing.
constexpr size_t kDefaultLocalSliceBytes = size_t{512} << 10;

// What the remote buffers' copies in scratch may take together: with the result's lines, less than
// the 1 to 2 MiB of L2 that a core has.
constexpr size_t kRemoteSetBytes = size_t{1} << 20;
constexpr size_t kLeastRemotePart = size_t{4} << 10;

constexpr size_t kLine = 64;

constexpr size_t RoundDown(size_t bytes) {
  return bytes & ~(kLine - 1);
}

}  // namespace

// The buffers behind a run of work elements.
struct LocalTask::Piece {
  struct Place {
    const MemoryView* view;
    uint64_t offset_bytes;
    uint32_t rank;
    bool SameAs(const Place& other) const {
      return view->SameByte(offset_bytes, *other.view, other.offset_bytes);
    }
  };
  absl::InlinedVector<Place, 8> inputs, outputs;
};

LocalTask::LocalTask(const OpDesc& op, std::vector<RankBuffers> ranks, size_t slice_bytes,
                     DoneFn done)
    : op_(op),
      ranks_(std::move(ranks)),
      slice_elements_(
          std::max(RoundDown(slice_bytes == 0 ? kDefaultLocalSliceBytes : slice_bytes), kLine) /
          SizeOf(op.dtype)),
      streaming_(RecvElements(op, static_cast<uint32_t>(ranks_.size())) * ranks_.size() *
                     SizeOf(op.dtype) >=
                 kStreamingBytes),
      // An empty operation has one empty slice, so that somebody ends it.
      gate_(std::max<uint64_t>(1, (WorkElements() + slice_elements_ - 1) / slice_elements_)),
      done_(std::move(done)) {
  SPCCL_CHECK(!ranks_.empty() && ranks_.size() <= kMaxLocalRanks);
}

uint64_t LocalTask::WorkElements() const {
  const bool shares = op_.kind == OpKind::kAllGather || op_.kind == OpKind::kReduceScatter ||
                      op_.kind == OpKind::kScatter;
  return shares ? op_.count * ranks_.size() : op_.count;
}

Progress LocalTask::RunOne(Scratch scratch) {
  const std::optional<uint64_t> slice = gate_.Claim();
  if (!slice.has_value()) return Progress::kDone;
  const bool last_claim = *slice + 1 == gate_.total();
  RunSlice(*slice, scratch);
  WriteSpan(*slice);
  if (gate_.Complete()) Finish();
  // `this` may be gone from here on, if its owner dropped it in DoneFn.
  return last_claim ? Progress::kDone : Progress::kRan;
}

void LocalTask::WriteSpan(uint64_t slice) const {
  SpanRing* const ring = SpanRing::OfThisThread();
  if (ring == nullptr || ring->slice_began_ns() == 0) return;
  const uint64_t first = slice * slice_elements_;
  const uint64_t elements =
      std::min(slice_elements_, WorkElements() - std::min(first, WorkElements()));
  Span span{.operation = operation(),
            .bytes = static_cast<uint32_t>(elements * SizeOf(op_.dtype)),
            .lane = static_cast<uint32_t>(slice),
            .kind = SpanKind::kLocal};
  span.SetTimes(ring->slice_began_ns(), MonotonicNanos());
  ring->Write(span);
}

TaskLook LocalTask::Look() {
  TaskLook look;
  look.total = gate_.total();
  look.progress = look.taken = std::min(gate_.next(), gate_.total());
  const bool all_taken = look.taken == look.total;
  look.lines.push_back({.doing = all_taken ? TaskLook::Doing::kRuns : TaskLook::Doing::kQueued,
                        .step = Reduces(op_.kind) ? "reduce" : "copy",
                        .count = all_taken ? 1 : look.total - look.taken});
  return look;
}

void LocalTask::Cancel(absl::Status reason, int culprit_rank) {
  Fail(std::move(reason), culprit_rank);
  if (gate_.Close()) Finish();
}

void LocalTask::Fail(absl::Status status, int culprit_rank) {
  const std::lock_guard lock(mutex_);
  if (!result_.status.ok()) return;  // the first reason counts
  result_.status = std::move(status);
  result_.culprit_rank = culprit_rank;
}

void LocalTask::Finish() {
  OpResult result;
  {
    const std::lock_guard lock(mutex_);
    result = result_;
  }
  const DoneFn done = std::move(done_);
  done(result);
}

void LocalTask::RunSlice(uint64_t slice, Scratch scratch) {
  uint64_t first = slice * slice_elements_;
  const uint64_t end = std::min(first + slice_elements_, WorkElements());
  Piece piece;
  while (first < end) {
    const uint64_t elements = PieceAt(first, end - first, &piece);
    if (!RunPiece(piece, elements, scratch)) {
      // Nothing is ended twice: this slice is still ours, so Close() cannot be the last.
      gate_.Close();
      return;
    }
    first += elements;
  }
}

uint64_t LocalTask::PieceAt(uint64_t first, uint64_t elements, Piece* piece) const {
  piece->inputs.clear();
  piece->outputs.clear();
  const uint64_t width = SizeOf(op_.dtype);
  const auto in = [&](uint32_t rank, uint64_t element) {
    piece->inputs.push_back({&ranks_[rank].send, element * width, rank});
  };
  const auto out = [&](uint32_t rank, uint64_t element) {
    piece->outputs.push_back({&ranks_[rank].recv, element * width, rank});
  };
  const uint32_t ranks = static_cast<uint32_t>(ranks_.size());
  const auto all = [ranks](const auto& add, uint64_t element) {
    for (uint32_t rank = 0; rank < ranks; ++rank) add(rank, element);
  };
  switch (op_.kind) {
    case OpKind::kAllReduce:
      all(in, first);
      all(out, first);
      return elements;
    case OpKind::kBroadcast:
      in(op_.root, first);
      all(out, first);
      return elements;
    case OpKind::kReduceScatter: {
      const uint64_t owner = first / op_.count;
      all(in, first);
      out(static_cast<uint32_t>(owner), first % op_.count);
      return std::min(elements, op_.count - first % op_.count);
    }
    case OpKind::kScatter: {
      const uint64_t owner = first / op_.count;
      in(op_.root, first);
      out(static_cast<uint32_t>(owner), first % op_.count);
      return std::min(elements, op_.count - first % op_.count);
    }
    case OpKind::kAllGather: {
      const uint64_t owner = first / op_.count;
      in(static_cast<uint32_t>(owner), first % op_.count);
      all(out, first);
      return std::min(elements, op_.count - first % op_.count);
    }
  }
  return elements;
}

bool LocalTask::RunPiece(const Piece& piece, uint64_t elements, Scratch scratch) {
  const auto remote = [](const Piece::Place& place) { return !place.view->mapped(); };
  size_t slots = std::count_if(piece.inputs.begin(), piece.inputs.end(), remote);
  // A reduction without a remote input's copy to overwrite needs a place for its result.
  if (Reduces(op_.kind) && slots == 0 &&
      std::any_of(piece.outputs.begin(), piece.outputs.end(), remote)) {
    slots = 1;
  }
  const uint64_t width = SizeOf(op_.dtype);
  uint64_t part = elements;
  size_t slot_bytes = 0;
  if (slots > 0) {
    const size_t wanted = std::max(kRemoteSetBytes / slots, kLeastRemotePart);
    slot_bytes = RoundDown(std::min(wanted, scratch.size() / slots));
    SPCCL_CHECK(slot_bytes > 0);
    part = slot_bytes / width;
  }
  for (uint64_t at = 0; at < elements; at += part) {
    const uint64_t n = std::min(part, elements - at);
    if (!RunPart(piece, at * width, n, slot_bytes, scratch)) return false;
  }
  return true;
}

bool LocalTask::RunPart(const Piece& piece, uint64_t skip_bytes, uint64_t elements,
                        size_t slot_bytes, Scratch scratch) {
  const size_t bytes = elements * SizeOf(op_.dtype);
  std::byte* slot = scratch.data();
  std::byte* result = nullptr;  // of a reduction, where remote outputs are written from

  absl::InlinedVector<const void*, 8> inputs;
  for (const Piece::Place& place : piece.inputs) {
    if (place.view->mapped()) {
      inputs.push_back(place.view->data() + place.offset_bytes + skip_bytes);
      continue;
    }
    if (absl::Status status = place.view->Read(place.offset_bytes + skip_bytes, slot, bytes);
        !status.ok()) {
      Fail(Annotate(status, absl::StrCat("rank ", place.rank)), static_cast<int>(place.rank));
      return false;
    }
    inputs.push_back(slot);
    if (result == nullptr) result = slot;  // the first remote input's copy may be overwritten
    slot += slot_bytes;
  }

  absl::InlinedVector<void*, 8> outputs;
  bool any_remote = false;
  for (const Piece::Place& place : piece.outputs) {
    if (place.view->mapped()) {
      outputs.push_back(place.view->data() + place.offset_bytes + skip_bytes);
    } else {
      any_remote = true;
    }
  }
  if (!Reduces(op_.kind)) {
    CopyToMany(inputs[0], outputs, bytes, streaming_);
    return !any_remote || WriteRemote(piece, skip_bytes, inputs[0], bytes);
  }
  if (any_remote) {
    if (result == nullptr) result = slot;
    outputs.push_back(result);
  }
  // A result in scratch is read again at once: it must not go past the caches.
  Reduce(op_.dtype, op_.redop, inputs, outputs, elements, streaming_ && !any_remote);
  return !any_remote || WriteRemote(piece, skip_bytes, result, bytes);
}

bool LocalTask::WriteRemote(const Piece& piece, uint64_t skip_bytes, const void* result,
                            size_t bytes) {
  for (const Piece::Place& place : piece.outputs) {
    if (place.view->mapped()) continue;
    // In place: what a copy would write is there already.
    if (!Reduces(op_.kind) && place.SameAs(piece.inputs[0])) continue;
    if (absl::Status status = place.view->Write(place.offset_bytes + skip_bytes, result, bytes);
        !status.ok()) {
      Fail(Annotate(status, absl::StrCat("rank ", place.rank)), static_cast<int>(place.rank));
      return false;
    }
  }
  return true;
}

}  // namespace spccl::runtime
