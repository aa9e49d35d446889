// What ranks submit: from the slot to the communicator.
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "daemon/engine.h"

namespace spccl::daemon {
namespace {

// Slots of one session in a row, before other sessions get their turn.
constexpr int kSlotsATurn = 64;

}  // namespace

void Engine::DrainSubmissions(uint64_t session_id) {
  Session* const session = registry_.FindSession(session_id);
  if (session == nullptr) return;
  std::atomic<uint32_t>* const sleepers = session->submissions->sleepers();
  // While we look the client need not ring. Relaxed: a ring too many does no harm.
  sleepers->store(0, std::memory_order_relaxed);
  for (int i = 0; i < kSlotsATurn; ++i) {
    shm::Submission slot;
    shm::RingState state = session->submissions->TryPop(&slot);
    if (state == shm::RingState::kNotReady) {
      // Sequentially consistent: the client stores `tail` and then loads `sleepers`, we store
      // `sleepers` and then load `tail`; one of us sees the other's store.
      sleepers->store(1, std::memory_order_seq_cst);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      state = session->submissions->TryPop(&slot);
      if (state == shm::RingState::kNotReady) return;
      sleepers->store(0, std::memory_order_relaxed);
    }
    absl::Status taken = state == shm::RingState::kCorrupt
                             ? absl::InvalidArgumentError(
                                   "its submission ring has an impossible "
                                   "index")
                             : TakeSubmission(*session, slot);
    if (!taken.ok()) {
      CloseSession(session_id, absl::StrCat("broke the protocol: ", taken.message()),
                   LogLevel::kWarning);
      return;
    }
  }
  loop_->Post([this, session_id] { DrainSubmissions(session_id); });
}

void Engine::NudgeTasks(uint64_t session_id) {
  const Session* const session = registry_.FindSession(session_id);
  if (session == nullptr) return;
  for (const auto& [handle, membership] : session->memberships) {
    const CommEntry* const entry = registry_.FindComm(membership.comm_id);
    if (entry->running != nullptr && entry->running->task) entry->running->task->Nudge();
  }
}

SlotCheck Engine::CheckSlot(const Session& session, const shm::Submission& slot) const {
  const auto member = [&](uint32_t handle) -> std::optional<MemberView> {
    const auto found = session.memberships.find(handle);
    if (found == session.memberships.end()) return std::nullopt;
    const CommEntry* const entry = registry_.FindComm(found->second.comm_id);
    return MemberView{.ranks = entry->comm.ranks(),
                      .rank = found->second.rank,
                      .has_relays = entry->relay_control != nullptr};
  };
  const auto buffer = [&](uint64_t id) -> std::optional<BufferView> {
    const auto found = session.buffers.find(id);
    if (found == session.buffers.end()) return std::nullopt;
    // Ranges of the client's own memory cannot be told apart by id: each is its own memory here,
    // and an overlap harms only who asked for it.
    const Buffer& buffer = found->second;
    return BufferView{
        .size_bytes = buffer.size_bytes,
        .memory_id = buffer.memory_id != 0 ? buffer.memory_id : (uint64_t{1} << 63) | id,
        .mapped = buffer.mapping != nullptr,
        .on_gpu = buffer.gpu_memory != nullptr};
  };
  return CheckSubmission(slot, SessionView{.member = member,
                                           .buffer = buffer,
                                           .has_order = session.order != nullptr,
                                           .attach_possible = session.memory != nullptr});
}

void Engine::PlaceBuffers(Session& session, const shm::Submission& slot, const CommEntry& entry,
                          uint32_t rank, RankPart* part) {
  const auto view = [&session](const shm::BufferRef& ref, std::shared_ptr<const void>* owner) {
    if (ref.buffer_id == shm::kRawAddress) {
      *owner = session.memory;
      return runtime::MemoryView::Remote(session.memory.get(), ref.offset);
    }
    const auto found = session.buffers.find(ref.buffer_id);
    if (found == session.buffers.end())
      return runtime::MemoryView();  // unused: only the root sends
    Buffer& buffer = found->second;
    ++buffer.uses;
    if (buffer.gpu_memory) {
      *owner = buffer.gpu_memory;
      return runtime::MemoryView::Device(buffer.gpu_memory->pointer + ref.offset,
                                         buffer.gpu_memory->gpu);
    }
    if (!buffer.mapping) {
      *owner = session.memory;
      return runtime::MemoryView::Remote(session.memory.get(), buffer.address + ref.offset);
    }
    *owner = buffer.mapping;
    return runtime::MemoryView::Mapped(buffer.mapping->data() + ref.offset);
  };
  part->buffers.send = view(slot.send, &part->send_owner);
  part->buffers.recv = view(slot.recv, &part->recv_owner);
  if (part->buffers.recv.on_gpu()) part->buffers.order = part->order;
  if (slot.relay != 0) {
    part->relay = std::make_shared<Relay>(entry.relay_control, rank, slot.sequence);
    part->buffers.relay = part->relay;
  }
}

absl::Status Engine::TakeSubmission(Session& session, const shm::Submission& slot) {
  if (!session.port->Admit()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it has more than ", shm::kCompletionCapacity,
                     " operations submitted and not reaped, or an impossible completion index"));
  }
  SlotCheck check = CheckSlot(session, slot);
  if (check.fault == SlotFault::kCorrupt) return check.status;
  const auto found = session.memberships.find(slot.comm_id);
  RankPart part;
  part.ticket = slot.ticket;
  part.handle = slot.comm_id;
  part.port = session.port;
  part.order = OrderOf(session, slot);
  if (found == session.memberships.end()) {
    return part.Complete(check.status)
               ? absl::OkStatus()
               : absl::InvalidArgumentError("its completion ring has an impossible index");
  }
  const Membership membership = found->second;
  CommEntry* const entry = registry_.FindComm(membership.comm_id);
  if (check.status.ok()) check.status = CheckOperationQuota(*entry, slot.sequence);
  if (check.status.ok()) {
    part.op = check.op;
    PlaceBuffers(session, slot, *entry, membership.rank, &part);
  }
  SPCCL_ASSIGN_OR_RETURN(std::vector<Outcome> outcomes,
                         entry->comm.Submit(membership.rank, slot.sequence, std::move(part),
                                            check.status, MonotonicNanos()));
  Complete(std::move(outcomes));
  // The other nodes wait for this operation.
  if (entry->across() && !check.status.ok() && entry->comm.state() == Communicator::State::kReady) {
    const char* const how = check.fault == SlotFault::kNone
                                ? " could not call the operation: "
                                : " called the operation with a wrong argument: ";
    FailComm(membership.comm_id,
             {.status = absl::AbortedError(absl::StrCat(entry->comm.NameOfRank(membership.rank),
                                                        how, check.status.message())),
              .culprit_rank = static_cast<int>(membership.rank)});
  }
  Pump(membership.comm_id);
  return absl::OkStatus();
}

void Engine::Complete(std::vector<Outcome> outcomes) {
  // A ring that turns out to be broken ends its session at that client's next submission.
  for (const Outcome& outcome : outcomes) outcome.part.Complete(outcome.status);
}

}  // namespace spccl::daemon
