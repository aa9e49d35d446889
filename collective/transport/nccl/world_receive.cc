// What a world does as a receiver: it checks what is announced, makes room for it on the issuing
// thread, says so to the root, and hands on what has arrived.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/transport/nccl/world_state.h"

namespace spccl::transport::nccl {

absl::Status WorldState::TakeAnnounce(uint32_t node, const Message& message) {
  const OperationPtr operation = FindOperation(message.communicator, message.sequence);
  if (operation == nullptr || operation->stopped || operation->failure.has_value()) {
    std::vector<uint64_t> ids;
    for (const Announced& frame : message.frames) {
      if (frame.announces) ids.push_back(frame.id);
    }
    DeclineLocked(node, ids);
    return absl::OkStatus();
  }
  for (const Announced& frame : message.frames) {
    if (frame.announces) SPCCL_RETURN_IF_ERROR(AddIncomingLocked(node, operation, frame));
    const auto found = incoming.find({node, frame.id});
    if (found == incoming.end()) continue;  // declined by now
    if (found->second.operation != operation || found->second.offered) {
      return absl::InvalidArgumentError("it offers a frame twice, or another operation's");
    }
    if (frame.offers) {
      found->second.offered = true;
      found->second.head = frame.head;
    }
    Slot* const slot = SlotOf(found->second.to);
    slot->pending.push_back({found->first, frame.offers});
    PostAcceptLocked(slot);
  }
  return absl::OkStatus();
}

absl::Status WorldState::AddIncomingLocked(uint32_t node, const OperationPtr& operation,
                                           const Announced& frame) {
  const auto& ranks = *operation->world_rank_of;
  const Tag& tag = frame.tag;
  const auto wrong = [&](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("it announces a frame ", what...));
  };
  if (tag.from >= ranks.size() || tag.to >= ranks.size() || NodeOf(ranks[tag.from]) != node ||
      NodeOf(ranks[tag.to]) != options.node || frame.from >= options.node_of_rank.size() ||
      NodeOf(frame.from) != node || GpuOf(*operation, tag.to, tag.lane) == frame.from) {
    return wrong("from rank ", tag.from, " to rank ", tag.to, ", which is not its to send");
  }
  blamed = frame.from;
  const uint64_t largest = operation->options.largest_frame_bytes;
  if (frame.bytes > largest) {
    return wrong("of ", frame.bytes, " bytes; ", largest, " is the most in this operation");
  }
  uint64_t& charged = operation->in_bytes[{tag.from, tag.to}];
  const uint64_t most = std::max(options.window_bytes, CostOf(largest)) + options.window_bytes / 2;
  if (charged + CostOf(frame.bytes) > most) return wrong("above the window of ", most, " bytes");
  Incoming in{.operation = operation,
              .tag = tag,
              .from = frame.from,
              .to = GpuOf(*operation, tag.to, tag.lane),
              .bytes = frame.bytes,
              .frame = {}};
  if (!incoming.try_emplace({node, frame.id}, std::move(in)).second) {
    return wrong("with a number that another has");
  }
  charged += CostOf(frame.bytes);
  blamed.reset();
  return absl::OkStatus();
}

void WorldState::DeclineLocked(uint32_t node, const std::vector<uint64_t>& ids) {
  for (size_t at = 0; at < ids.size(); at += kMostItems) {
    const auto end = ids.begin() + static_cast<ptrdiff_t>(std::min(ids.size(), at + kMostItems));
    PostLocked(node, {.kind = MessageKind::kDeclined,
                      .ids = {ids.begin() + static_cast<ptrdiff_t>(at), end}});
  }
}

void WorldState::PostAcceptLocked(Slot* slot) {
  if (std::exchange(slot->accept_posted, true)) return;
  const std::weak_ptr<WorldState> weak = weak_from_this();
  slot->local.issuer->Post([weak, slot] {
    if (const auto self = weak.lock()) self->Accept(slot);
  });
}

// In the order in which frames were offered, which is the order of each lane. What is ready cannot
// come before the sinks have heard of it: it will be delivered by this thread.
void WorldState::Accept(Slot* slot) {
  Lock lock(mutex);
  slot->accept_posted = false;
  std::vector<Transfer> ready;
  std::vector<OperationPtr> told;
  std::map<uint32_t, std::vector<uint64_t>> declined;
  while (!failure.has_value() && !closing && ready.size() < kMostItems &&
         AcceptNextLocked(&lock, slot, &ready, &told, &declined)) {
  }
  if (failure.has_value() || closing) return;
  for (const auto& [node, ids] : declined) DeclineLocked(node, ids);
  if (!ready.empty()) {
    PostLocked(options.root, {.kind = MessageKind::kReady, .transfers = std::move(ready)});
  }
  Leave(&lock);
  for (const OperationPtr& operation : told) Deliver(&lock, operation, slot->local.rank);
}

// False if there is nothing more to accept for now. Lets go of the lock while it makes room.
bool WorldState::AcceptNextLocked(Lock* lock, Slot* slot, std::vector<Transfer>* ready,
                                  std::vector<OperationPtr>* told,
                                  std::map<uint32_t, std::vector<uint64_t>>* declined) {
  if (slot->pending.empty()) return false;
  const auto [key, offers] = slot->pending.front();
  auto found = incoming.find(key);
  if (found != incoming.end() && offers &&
      (slot->ready >= kMostReady ||
       (slot->ready > 0 && slot->ready_bytes + CostOf(found->second.bytes) > kMostReadyBytes))) {
    return false;  // OnPartDone goes on
  }
  slot->pending.pop_front();
  if (found == incoming.end()) return true;
  if (!found->second.frame.valid()) {
    const uint64_t bytes = found->second.bytes;
    lock->unlock();
    absl::StatusOr<Frame> frame = slot->local.frames->Take(bytes);
    lock->lock();
    found = incoming.find(key);
    if (found == incoming.end()) return true;
    if (!frame.ok()) {
      if (!offers) return true;  // once it is there, there may be room
      FailOperationLocked(found->second.operation, found->second.tag.to, frame.status());
      (*declined)[key.first].push_back(key.second);
      incoming.erase(found);
      return true;
    }
    SPCCL_CHECK(frame->capacity_bytes() >= bytes);
    frame->set_size_bytes(bytes);
    found->second.frame = *std::move(frame);
  }
  Incoming& in = found->second;
  if (!offers) return true;
  in.ready = true;
  SetHead(in.head, &in.frame);
  in.operation->in_bytes[{in.tag.from, in.tag.to}] -= CostOf(in.bytes);
  ++slot->ready;
  slot->ready_bytes += CostOf(in.bytes);
  in.operation->inbox[slot->local.rank].push_back(
      {.tag = in.tag, .bytes = in.bytes, .is_here = false, .frame = {}});
  if (told->empty() || told->back() != in.operation) told->push_back(in.operation);
  ready->push_back({.id = key.second, .from = in.from, .to = in.to, .bytes = in.bytes});
  return true;
}

void WorldState::DeclineAllLocked(const OperationPtr& operation) {
  std::map<uint32_t, std::vector<uint64_t>> declined;
  for (auto it = incoming.begin(); it != incoming.end();) {
    const bool unwanted = it->second.operation == operation && !it->second.ready;
    if (unwanted) declined[it->first.first].push_back(it->first.second);
    it = unwanted ? incoming.erase(it) : std::next(it);
  }
  for (const auto& [node, ids] : declined) DeclineLocked(node, ids);
}

void WorldState::Deliver(Lock* lock, const OperationPtr& operation, uint32_t rank) {
  std::deque<Arrival>& inbox = operation->inbox[rank];
  while (operation->sink != nullptr && !operation->stopped && !operation->failure.has_value() &&
         !inbox.empty()) {
    Arrival next = std::move(inbox.front());
    inbox.pop_front();
    operation->in_sink.push_back(std::this_thread::get_id());
    Sink* const sink = operation->sink;
    lock->unlock();
    if (next.is_here) {
      sink->OnFrame(next.tag, std::move(next.frame));
    } else {
      sink->OnAnnounced({.tag = next.tag, .bytes = next.bytes});
    }
    lock->lock();
    LeaveSinkLocked(operation.get());
  }
}

}  // namespace spccl::transport::nccl
