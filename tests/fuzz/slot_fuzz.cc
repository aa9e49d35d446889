// Whatever a client writes into its submission slots: what CheckSubmission() takes lies within its
// buffers, and a communicator completes each part that it was given exactly once.
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>

#include "base/status.h"
#include "daemon/communicator.h"
#include "daemon/submission_check.h"
#include "proto/shm/order.h"
#include "tests/fuzz/fuzz_input.h"

namespace spccl::daemon {
namespace {

constexpr uint64_t kBufferBytes = 1 << 16;

void FuzzCheck(fuzz::Input& data) {
  shm::Submission slot{};
  data.Read(&slot, sizeof slot);
  const MemberView self{.ranks = 1 + data.UpTo(255), .rank = 0};
  const auto member = [&](uint32_t handle) -> std::optional<MemberView> {
    return handle % 4 == 3 ? std::nullopt : std::optional(self);
  };
  const auto buffer = [](uint64_t id) -> std::optional<BufferView> {
    if (id > 8) return std::nullopt;
    const bool on_gpu = id > 6;
    return BufferView{.size_bytes = kBufferBytes,
                      .memory_id = on_gpu ? 3 : 1 + id % 2,
                      .mapped = id % 2 == 0 && !on_gpu,
                      .on_gpu = on_gpu};
  };
  const bool has_order = data.OneIn(2);
  if (data.OneIn(2)) slot.order_slot %= shm::kOrderSlots + 2;
  const SlotCheck check = CheckSubmission(slot, {.member = member,
                                                 .buffer = buffer,
                                                 .has_order = has_order,
                                                 .attach_possible = data.OneIn(2)});
  SPCCL_CHECK(check.status.ok() == (check.fault == SlotFault::kNone));
  if (check.fault != SlotFault::kNone) return;
  // What is taken names words that are there.
  SPCCL_CHECK(slot.order_slot == 0 || (has_order && slot.order_slot <= shm::kOrderSlots));
  if (check.op.count == 0) return;
  SPCCL_CHECK(IsValidOpKind(slot.op) && IsValidDType(slot.dtype) && IsValidRedOp(slot.redop));
  const unsigned __int128 width = SizeOf(check.op.dtype);
  const unsigned __int128 recv_end = width * RecvElements(check.op, self.ranks) + slot.recv.offset;
  const unsigned __int128 send_end = width * SendElements(check.op, self.ranks) + slot.send.offset;
  const auto most = [](const shm::BufferRef& ref) {
    return ref.buffer_id == shm::kRawAddress ? ~uint64_t{0} : kBufferBytes;
  };
  SPCCL_CHECK(recv_end <= most(slot.recv));
  const bool reads = !HasRoot(check.op.kind) || check.op.root == self.rank;
  SPCCL_CHECK(!reads || send_end <= most(slot.send));
  const auto is_gpu = [](const shm::BufferRef& ref) { return ref.buffer_id > 6; };
  SPCCL_CHECK(!reads || is_gpu(slot.recv) == is_gpu(slot.send));
  SPCCL_CHECK(!is_gpu(slot.recv) || slot.order_slot != 0);
}

class CommunicatorFuzz {
 public:
  explicit CommunicatorFuzz(uint32_t ranks) : comm_(1, "job", 0, ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      Communicator::Member member;
      member.session_id = rank + 1;
      member.pid = static_cast<pid_t>(rank + 1);
      SPCCL_CHECK(comm_.Join(rank, ranks, member, 1'000'000).ok());
    }
  }

  void Step(fuzz::Input& data) {
    now_ns_ += data.Number<uint8_t>();
    const uint32_t rank = data.Number<uint8_t>() % comm_.ranks();
    switch (data.UpTo(5)) {
      case 0:
      case 1:
        return Submit(rank, data.Number<uint8_t>(), data);
      case 2:
        return Submit(rank, data.Number<uint64_t>(), data);
      case 3:
        return Take();
      case 4:
        comm_.Leave(rank);
        break;
      default:
        if (std::exchange(running_, false)) comm_.FinishRunning(now_ns_);
        break;
    }
    if (const auto failure = comm_.Check(now_ns_, 10'000)) Fail(*failure);
    (void)comm_.PhaseOf(rank);
  }

  void End() {
    Fail({.status = absl::AbortedError("end")});
    SPCCL_CHECK(waiting_.empty());
    if (running_) comm_.FinishRunning(now_ns_);
    for (uint32_t rank = 0; rank < comm_.ranks(); ++rank) comm_.Leave(rank);
    SPCCL_CHECK(comm_.abandoned());
  }

 private:
  void Submit(uint32_t rank, uint64_t sequence, fuzz::Input& data) {
    if (comm_.left(rank)) return;  // its session has no handle any more
    RankPart part;
    part.ticket = next_ticket_++;
    part.op.count = data.OneIn(16);
    waiting_.insert(part.ticket);
    const uint64_t ticket = part.ticket;
    auto outcomes = comm_.Submit(
        rank, sequence, std::move(part),
        data.OneIn(10) ? absl::InvalidArgumentError("wrong") : absl::OkStatus(), now_ns_);
    if (!outcomes.ok()) {
      waiting_.erase(ticket);  // the session ends: nobody waits for it
      comm_.Leave(rank);
      Fail({.status = outcomes.status(), .culprit_rank = static_cast<int>(rank)});
      return;
    }
    Settle(*outcomes);
  }

  void Take() {
    const auto ready = comm_.TakeReady(now_ns_);
    if (!ready) return;
    SPCCL_CHECK(!running_ && ready->parts.size() == comm_.ranks());
    SPCCL_CHECK(ready->sequence >= next_sequence_);
    next_sequence_ = ready->sequence + 1;
    running_ = true;
    for (const RankPart& part : ready->parts) SPCCL_CHECK(waiting_.erase(part.ticket) == 1);
  }

  void Fail(const CommFailure& failure) { Settle(comm_.Fail(failure)); }

  void Settle(const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) {
      SPCCL_CHECK(!outcome.status.ok());
      SPCCL_CHECK(waiting_.erase(outcome.part.ticket) == 1);
    }
  }

  Communicator comm_;
  std::set<uint64_t> waiting_;
  uint64_t next_ticket_ = 1, next_sequence_ = 0;
  int64_t now_ns_ = 0;
  bool running_ = false;
};

}  // namespace
}  // namespace spccl::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  spccl::fuzz::Input data(bytes, size);
  if (data.OneIn(2)) {
    while (!data.empty()) spccl::daemon::FuzzCheck(data);
    return 0;
  }
  spccl::daemon::CommunicatorFuzz comm(1 + data.UpTo(4));
  while (!data.empty()) comm.Step(data);
  comm.End();
  return 0;
}
