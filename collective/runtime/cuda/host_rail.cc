#include "collective/runtime/cuda/host_rail.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collective/runtime/cuda/names.h"
#include "collective/runtime/span_ring.h"
#include "kernels/host/dense.h"

namespace spccl::runtime {
namespace {

// One comes down, one goes up, one is reduced, and one more so that none of the three waits.
constexpr size_t kMostSlots = 4;
// Frames that an operation has pinned when it pins no more for another slot.
constexpr size_t kMostMade = 8;
// Several for a slice, so that channel threads share it; all inputs' are in the cache together.
constexpr size_t kPieceBytes = size_t{256} << 10;

std::vector<int> UsedGpus(std::span<const RankBuffers> ranks) {
  std::set<int> used;
  for (const RankBuffers& rank : ranks) used.insert({rank.send.gpu(), rank.recv.gpu()});
  return {used.begin(), used.end()};
}

struct CopyJob {
  cuda::DevicePtr to = 0, from = 0;
};

Detached CopyOn(Gpus& gpus, Gpu& gpu, Gpu::Way way, std::vector<CopyJob> jobs, size_t bytes,
                std::shared_ptr<Join> join) {
  co_await ThreadOf(gpu);
  absl::Status status = gpu.status();
  void* stream = nullptr;
  if (status.ok()) {
    absl::StatusOr<void*> made = gpu.CopyStream(way);
    status = made.status();
    if (made.ok()) stream = *made;
  }
  for (const CopyJob& job : jobs) {
    if (!status.ok()) break;
    status = gpus.driver()->ToStatus(
        gpus.driver()->MemcpyAsync(job.to, job.from, bytes, static_cast<cuda::Stream>(stream)),
        "cuMemcpyAsync");
  }
  if (stream != nullptr) {
    const absl::Status end = co_await EndOf(gpu, stream);
    status.Update(end);
  }
  join->Arrive(status);
}

}  // namespace

HostRail::HostRail(Gpus& gpus, Gpu& home, const OpDesc& op, std::span<const RankBuffers> ranks,
                   uint64_t first, size_t slice_bytes, DoneFn done)
    : gpus_(gpus),
      home_(home),
      op_(op),
      ranks_(ranks.begin(), ranks.end()),
      used_(UsedGpus(ranks)),
      width_(SizeOf(op.dtype)),
      first_(first),
      slice_elements_(std::max<uint64_t>(slice_bytes / width_, 1)),
      piece_elements_(kPieceBytes / width_),
      done_(std::move(done)),
      next_(first) {
  SPCCL_CHECK(op.kind == OpKind::kAllReduce && first < op.count);
}

absl::StatusOr<HostRail::Slot> HostRail::TakeSlot(size_t* made) {
  // The first one it needs; what is pinned for another makes the operation wait.
  const bool make = slots_.empty() || *made < kMostMade;
  const size_t bytes = slice_elements_ * width_;
  Slot slot;
  for (const RankBuffers& rank : ranks_) {
    Gpu& gpu = gpus_.at(static_cast<size_t>(rank.send.gpu()));
    absl::StatusOr<transport::Frame> frame = gpu.TakeSparePinned(bytes, /*make=*/false);
    if (!frame.ok() && make) {
      frame = gpu.TakeSparePinned(bytes, /*make=*/true);
      ++*made;
    }
    if (!frame.ok()) return frame.status();
    slot.inputs.push_back(*std::move(frame));
  }
  return slot;
}

absl::Status HostRail::TakeMemory() {
  const uint64_t slices = (op_.count - first_ + slice_elements_ - 1) / slice_elements_;
  size_t made = 0;
  while (slots_.size() < std::min<uint64_t>(slices, kMostSlots)) {
    absl::StatusOr<Slot> slot = TakeSlot(&made);
    if (!slot.ok() && slots_.empty()) return slot.status();
    if (!slot.ok()) {
      warms_ = made >= kMostMade;
      break;
    }
    slots_.push_back(*std::move(slot));
  }
  return absl::OkStatus();
}

void HostRail::Begin() {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    SPCCL_CHECK(!slots_.empty());
    started_ = true;
    leading_ = slots_.size();
  }
  const std::shared_ptr<HostRail> self = shared_from_this();
  for (Slot& slot : slots_) Lead(self, &slot);
}

// One slice after the other, until there is none left. `self`: what is led keeps the rail.
Detached HostRail::Lead([[maybe_unused]] std::shared_ptr<HostRail> self, Slot* slot) {
  co_await ThreadOf(home_);
  bool copies_ended = true;
  while (NextSlice(slot)) {
    absl::Status status = co_await Arrived(StartCopies(*slot, Gpu::Way::kDown));
    if (status.ok()) status = co_await Arrived(QueuePieces(*slot));
    if (status.ok()) status = co_await Arrived(StartCopies(*slot, Gpu::Way::kUp));
    if (!status.ok()) {
      copies_ended = AllGpusWork();
      Fail(std::move(status), -1);
      break;
    }
    const std::lock_guard lock(mutex_);
    ++slices_done_;
  }
  EndSlot(slot, copies_ended);
}

// Where one has failed, its copies have ended for us only.
bool HostRail::AllGpusWork() const {
  return std::all_of(used_.begin(), used_.end(), [this](int index) {
    return gpus_.at(static_cast<size_t>(index)).status().ok();
  });
}

bool HostRail::NextSlice(Slot* slot) {
  const std::lock_guard lock(mutex_);
  if (failed_ || next_ == op_.count) return false;
  slot->first = next_;
  slot->elements = std::min(slice_elements_, op_.count - next_);
  next_ += slot->elements;
  return true;
}

std::shared_ptr<Join> HostRail::StartCopies(const Slot& slot, Gpu::Way way) {
  const uint64_t offset = slot.first * width_;
  auto join = std::make_shared<Join>(home_, used_.size());
  for (const int index : used_) {
    std::vector<CopyJob> jobs;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const MemoryView& memory = way == Gpu::Way::kDown ? ranks_[rank].send : ranks_[rank].recv;
      if (memory.gpu() != index) continue;
      const cuda::DevicePtr at = memory.address() + offset;
      if (way == Gpu::Way::kDown) {
        jobs.push_back({.to = PointerOf(slot.inputs[rank].data()), .from = at});
      } else {
        jobs.push_back({.to = at, .from = PointerOf(slot.inputs[0].data())});
      }
    }
    CopyOn(gpus_, gpus_.at(static_cast<size_t>(index)), way, std::move(jobs),
           slot.elements * width_, join);
  }
  return join;
}

std::shared_ptr<Join> HostRail::QueuePieces(const Slot& slot) {
  const uint64_t pieces = (slot.elements + piece_elements_ - 1) / piece_elements_;
  bool failed;
  absl::Status reason;
  auto join = std::make_shared<Join>(home_, pieces);
  {
    const std::lock_guard lock(mutex_);
    failed = failed_;
    reason = result_.status;
    for (uint64_t first = 0; first < slot.elements && !failed; first += piece_elements_) {
      pieces_.push_back({.slot = &slot,
                         .first = first,
                         .elements = std::min(piece_elements_, slot.elements - first),
                         .join = join});
    }
  }
  for (uint64_t piece = 0; piece < pieces && failed; ++piece) join->Arrive(reason);
  // This slot is under way, so that nobody has ended who the waker belongs to.
  Wake();
  return join;
}

Progress HostRail::RunOne(Scratch /*scratch*/) {
  Piece piece;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || ended_) return Progress::kDone;
    if (pieces_.empty()) return Progress::kIdle;
    piece = std::move(pieces_.front());
    pieces_.pop_front();
  }
  RunPiece(piece);
  piece.join->Arrive(absl::OkStatus());
  return Progress::kRan;
}

// In the first input's place, as the kernel for GPUs combines them: in rank order, rounded once.
void HostRail::RunPiece(const Piece& piece) {
  const int64_t began_ns = MonotonicNanos();
  const uint64_t offset = piece.first * width_;
  std::vector<const void*> inputs;
  for (const transport::Frame& frame : piece.slot->inputs) inputs.push_back(frame.data() + offset);
  void* const output = piece.slot->inputs[0].data() + offset;
  Reduce(op_.dtype, op_.redop, inputs, std::span<void* const>(&output, 1), piece.elements,
         /*streaming=*/false);
  const int64_t ended_ns = MonotonicNanos();
  {
    const std::lock_guard lock(mutex_);
    ++pieces_done_;
    result_.stats.reduce_ns += static_cast<uint64_t>(ended_ns - began_ns);
  }
  SpanRing* const ring = SpanRing::OfThisThread();
  if (ring == nullptr) return;
  Span span{.operation = operation(),
            .bytes = static_cast<uint32_t>(piece.elements * width_),
            .lane = static_cast<uint32_t>((piece.slot->first - first_) / slice_elements_),
            .kind = SpanKind::kLocal};
  span.SetTimes(began_ns, ended_ns);
  ring->Write(span);
}

void HostRail::Fail(absl::Status status, int culprit_rank) {
  std::deque<Piece> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || ended_) return;  // the first reason counts
    failed_ = true;
    result_.status = status;
    result_.culprit_rank = culprit_rank;
    dropped.swap(pieces_);
  }
  for (const Piece& piece : dropped) piece.join->Arrive(status);
}

void HostRail::EndSlot(Slot* slot, bool copies_ended) {
  for (transport::Frame& frame : slot->inputs) {
    if (!copies_ended) frame.Lose();
  }
  slot->inputs.clear();
  {
    const std::lock_guard lock(mutex_);
    if (--leading_ > 0) return;
    ended_ = true;
  }
  End();
}

void HostRail::End() {
  // While somebody still waits for `done`: then the threads may go that the waker wakes.
  Wake();
  DoneFn done;
  OpResult result;
  {
    const std::lock_guard lock(mutex_);
    done = std::move(done_);
    result = std::move(result_);
    result.stats.host_path_bytes = (next_ - first_) * width_;
  }
  done(result);
}

void HostRail::Cancel(absl::Status reason, int culprit_rank) {
  Fail(std::move(reason), culprit_rank);
  {
    const std::lock_guard lock(mutex_);
    if (started_ || ended_) return;
    ended_ = true;
  }
  slots_.clear();
  End();
}

TaskLook HostRail::Look() {
  TaskLook look;
  const std::lock_guard lock(mutex_);
  look.total = (op_.count - first_ + slice_elements_ - 1) / slice_elements_;
  look.taken = (next_ - first_ + slice_elements_ - 1) / slice_elements_;
  look.progress = look.taken + pieces_done_ + slices_done_;
  if (ended_) return look;
  // Pieces that lie there wait for a channel thread.
  const bool runs = started_ && pieces_.empty();
  look.lines.push_back({.doing = runs ? TaskLook::Doing::kRuns : TaskLook::Doing::kQueued,
                        .step = "reduce over the host",
                        .count = started_ ? leading_ : 1});
  return look;
}

}  // namespace spccl::runtime
