#include "client/relay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/futex.h"
#include "base/status.h"
#include "client/copy.h"
#include "client/region.h"
#include "client/session.h"
#include "kernels/host/dense.h"

namespace spccl::client {
namespace {

// So much is reduced before it is copied to where it belongs: it still lies in the L1 cache then.
constexpr size_t kPartBytes = size_t{16} << 10;

}  // namespace

// One operation on its way.
class Relay::Passage {
 public:
  Passage(const Relay& relay, const Buffers& buffers)
      : relay_(relay),
        buffers_(buffers),
        slices_((buffers.bytes + shm::kRelaySlotBytes - 1) / shm::kRelaySlotBytes),
        over_(NextForeign(0)),
        back_(NextForeign(0)),
        own_(relay.rank_),
        inputs_(relay.ranks_),
        outputs_(std::max(relay.ranks_, 2u) - 1) {}

  bool is_over() const { return own_ >= slices_ && back_ >= slices_; }
  bool CanStep() const { return CanReduce() || CanTakeBack() || CanHandOver(); }

  // Does what is next, if CanStep(). First what others wait for, last what takes up a slot.
  void Step() {
    if (CanReduce()) {
      ReduceOwn();
    } else if (CanTakeBack()) {
      TakeBack();
    } else {
      HandOver();
    }
  }

 private:
  uint64_t NextForeign(uint64_t slice) const {
    return shm::OwnerOf(slice, relay_.ranks_) != relay_.rank_ ? slice
           : relay_.ranks_ > 1                                ? slice + 1
                                                              : slices_;
  }
  size_t SizeOfSlice(uint64_t slice) const {
    return std::min(shm::kRelaySlotBytes, buffers_.bytes - slice * shm::kRelaySlotBytes);
  }
  const std::byte* Input(uint64_t slice) const {
    return static_cast<const std::byte*>(buffers_.send) + slice * shm::kRelaySlotBytes;
  }
  std::byte* Output(uint64_t slice) const {
    return static_cast<std::byte*>(buffers_.recv) + slice * shm::kRelaySlotBytes;
  }
  // Acquire: the other's bytes are there. Sequentially consistent: not before counting oneself
  // among the sleepers.
  bool IsAt(uint32_t rank, uint64_t slice, uint64_t turn) const {
    return relay_.Turn(rank, slice).load(std::memory_order_seq_cst) == turn;
  }
  // Release: the bytes are there. Sequentially consistent: before the look at `sleepers`.
  void Pass(uint32_t rank, uint64_t slice, uint64_t turn) const {
    relay_.Turn(rank, slice).store(turn, std::memory_order_seq_cst);
  }

  bool CanReduce() const {
    if (own_ >= slices_) return false;
    for (uint32_t rank = 0; rank < relay_.ranks_; ++rank) {
      if (rank == relay_.rank_) continue;
      if (!IsAt(rank, own_, shm::HandedOver(buffers_.sequence, own_))) return false;
    }
    return true;
  }
  bool CanTakeBack() const {
    return back_ < over_ && IsAt(relay_.rank_, back_, shm::HandedBack(buffers_.sequence, back_));
  }
  bool CanHandOver() const { return over_ < slices_ && in_slots_ < shm::kRelaySlots; }

  void ReduceOwn() {
    const size_t bytes = SizeOfSlice(own_);
    for (size_t at = 0; at < bytes; at += kPartBytes) {
      ReducePart(at, std::min(kPartBytes, bytes - at));
    }
    for (uint32_t rank = 0; rank < relay_.ranks_; ++rank) {
      if (rank == relay_.rank_) continue;
      Pass(rank, own_, shm::HandedBack(buffers_.sequence, own_));
      relay_.Ring(rank);
    }
    own_ += relay_.ranks_;
  }

  // The results go into the slots, in place, and from there past the caches into our own memory,
  // which may begin anywhere in a line.
  void ReducePart(size_t at, size_t bytes) {
    size_t slots = 0;
    for (uint32_t rank = 0; rank < relay_.ranks_; ++rank) {
      inputs_[rank] = Input(own_) + at;
      if (rank == relay_.rank_) continue;
      std::byte* const slot = relay_.Slot(rank, own_) + at;
      inputs_[rank] = slot;
      outputs_[slots++] = slot;
    }
    std::byte* const output = Output(own_) + at;
    if (slots == 0) outputs_[0] = output;
    Reduce(buffers_.dtype, buffers_.redop, inputs_, outputs_, bytes / SizeOf(buffers_.dtype),
           /*streaming=*/false);
    if (slots != 0) CopyPastCaches(output, outputs_[0], bytes);
  }

  void TakeBack() {
    CopyPastCaches(Output(back_), relay_.Slot(relay_.rank_, back_), SizeOfSlice(back_));
    back_ = NextForeign(back_ + 1);
    --in_slots_;
  }

  void HandOver() {
    CopyAhead(relay_.Slot(relay_.rank_, over_), Input(over_), SizeOfSlice(over_));
    Pass(relay_.rank_, over_, shm::HandedOver(buffers_.sequence, over_));
    relay_.Ring(shm::OwnerOf(over_, relay_.ranks_));
    over_ = NextForeign(over_ + 1);
    ++in_slots_;
  }

  const Relay& relay_;
  const Buffers buffers_;
  const uint64_t slices_;
  // The next slice to hand over, to take back, and to reduce.
  uint64_t over_, back_, own_;
  uint32_t in_slots_ = 0;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

absl::StatusOr<std::unique_ptr<Relay>> Relay::Open(Session& session, uint32_t comm_id,
                                                   uint32_t rank, uint32_t ranks) {
  shm::Request request{};
  request.type = shm::RequestType::kCommRelays;
  request.comm.comm_id = comm_id;
  SPCCL_ASSIGN_OR_RETURN(const UniqueFd memfd,
                         session.AskForDescriptor(request, "asking for relays"));
  if (const auto size = CheckSealedMemfd(memfd.get(), shm::RelayBytes(ranks)); !size.ok()) {
    return absl::InternalError(absl::StrCat("the daemon's relays: ", size.status().message()));
  }
  SPCCL_ASSIGN_OR_RETURN(SharedMapping memory,
                         SharedMapping::Create(memfd.get(), shm::RelayBytes(ranks)));
  auto relay = std::make_unique<Relay>(std::move(memory), rank, ranks);
  constexpr size_t kSlotsBytes = shm::kRelaySlots * shm::kRelaySlotBytes;
  std::byte* const slots = relay->memory_.data() + shm::RelaySlotsOffset(ranks);
  SPCCL_RETURN_IF_ERROR(MakePresent(slots + rank * kSlotsBytes, kSlotsBytes));
  return relay;
}

Relay::Relay(SharedMapping memory, uint32_t rank, uint32_t ranks)
    : memory_(std::move(memory)), rank_(rank), ranks_(ranks) {}

shm::RelayControl& Relay::control(uint32_t rank) const {
  return *reinterpret_cast<shm::RelayControl*>(memory_.data() + rank * shm::kRelayControlBytes);
}

std::byte* Relay::Slot(uint32_t rank, uint64_t slice) const {
  const size_t slot = rank * size_t{shm::kRelaySlots} + shm::SlotOf(slice, rank, ranks_);
  return memory_.data() + shm::RelaySlotsOffset(ranks_) + slot * shm::kRelaySlotBytes;
}

std::atomic<uint64_t>& Relay::Turn(uint32_t rank, uint64_t slice) const {
  return control(rank).turns[shm::SlotOf(slice, rank, ranks_)].value;
}

void Relay::Ring(uint32_t rank) const {
  shm::RelayControl& other = control(rank);
  if (other.sleepers.load(std::memory_order_seq_cst) == 0) return;
  // Release: whoever sees the bell change sees what it was rung for.
  other.bell.fetch_add(1, std::memory_order_release);
  FutexWakeAll(&other.bell);
}

bool Relay::Await(const std::function<bool()>& is_there,
                  const std::function<bool()>& has_ended) const {
  if (is_there()) return true;
  shm::RelayControl& mine = control(rank_);
  mine.sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool came;
  for (;;) {
    // Acquire: what the bell was rung for is seen below.
    const uint32_t seen = mine.bell.load(std::memory_order_acquire);
    came = is_there();
    if (came || has_ended()) break;
    FutexWait(&mine.bell, seen, kLongestSleepNs);
  }
  // Relaxed: a bell too many does no harm.
  mine.sleepers.fetch_sub(1, std::memory_order_relaxed);
  return came;
}

void Relay::SayDone(uint64_t sequence, const Hooks& hooks) const {
  const uint64_t tag = shm::OpTag(sequence);
  // Sequentially consistent: before the look at the others, so that the last one sees all.
  control(rank_).done.store(tag, std::memory_order_seq_cst);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (control(rank).done.load(std::memory_order_seq_cst) != tag) return;
  }
  hooks.tell_daemon();
}

Relay::End Relay::Exchange(const Buffers& buffers, const Hooks& hooks) {
  uint64_t decision = 0;
  const auto is_decided = [&] {
    // Acquire: what other operations did to the slots is over.
    decision = control(rank_).decision.load(std::memory_order_seq_cst);
    return decision == shm::Passes(buffers.sequence) || decision == shm::Declined(buffers.sequence);
  };
  if (!Await(is_decided, hooks.has_ended) || decision == shm::Declined(buffers.sequence)) {
    return End::kElsewhere;
  }
  // Acquire: what this rank did in its last operation, perhaps in another thread, is over. The
  // daemon has seen that before it decided; ThreadSanitizer does not see the daemon.
  static_cast<void>(control(rank_).done.load(std::memory_order_acquire));
  Passage passage(*this, buffers);
  const auto can_step = [&passage] { return passage.CanStep(); };
  while (!passage.is_over()) {
    if (!Await(can_step, hooks.has_ended)) return End::kCutShort;
    passage.Step();
  }
  SayDone(buffers.sequence, hooks);
  return End::kComplete;
}

}  // namespace spccl::client
