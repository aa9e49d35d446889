// A world's beginning and end, and what it tells whom.
#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/transport/nccl/world_state.h"

namespace spccl::transport::nccl {
namespace {

constexpr std::chrono::milliseconds kFastTurn{1};
constexpr std::chrono::milliseconds kSlowTurn{50};

}  // namespace

WorldState::WorldState(WorldOptions given)
    : options(std::move(given)),
      nodes(options.node_of_rank.begin(), options.node_of_rank.end()),
      sequencer(options.groups, options.node_of_rank) {}

WorldState::Slot* WorldState::SlotOf(uint32_t rank) {
  for (const auto& slot : slots) {
    if (slot->local.rank == rank) return slot.get();
  }
  return nullptr;
}

uint32_t WorldState::RankOf(uint32_t node) const {
  const auto& all = options.node_of_rank;
  return static_cast<uint32_t>(std::find(all.begin(), all.end(), node) - all.begin());
}

void WorldState::Begin() {
  for (const WorldOptions::Local& local : options.locals) {
    auto slot = std::make_unique<Slot>();
    slot->local = local;
    // Not shared: the state owns the members.
    const std::weak_ptr<WorldState> weak = weak_from_this();
    Slot* const raw = slot.get();
    MemberOptions member{.library = options.library,
                         .issuer = local.issuer,
                         .rank = local.rank,
                         .ranks = static_cast<uint32_t>(options.node_of_rank.size()),
                         .max_ctas = options.max_ctas,
                         .init_deadline_ns = options.init_deadline_ns,
                         .group_deadline_ns = options.group_deadline_ns,
                         .close_deadline_ns = options.close_deadline_ns};
    member.on_up = [weak, raw] {
      if (const auto self = weak.lock()) self->OnMemberUp(raw);
    };
    member.on_haste = [weak] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      const std::lock_guard lock(self->mutex);
      self->changed.notify_all();
    };
    member.on_failed = [weak, rank = local.rank](const absl::Status& status, bool another_gone) {
      if (const auto self = weak.lock()) self->OnMemberFailed(rank, status, another_gone);
    };
    member.on_done = [weak, raw](const std::shared_ptr<GroupPart>& part) {
      if (const auto self = weak.lock()) self->OnPartDone(raw, part);
    };
    member.on_ended = [weak, raw] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      const std::lock_guard lock(self->mutex);
      raw->ended = true;
      self->changed.notify_all();
    };
    slot->member = std::make_shared<Member>(std::move(member));
    slots.push_back(std::move(slot));
  }
  timer = std::thread([this] { RunTimer(); });
}

void WorldState::WantLocked() {
  if (wanted_ns.has_value()) return;
  wanted_ns = MonotonicNanos();
  if (options.node != options.root) PostLocked(options.root, {.kind = MessageKind::kWant});
  changed.notify_all();
}

// By the timer's thread: NCCL opens sockets for it.
void WorldState::Name(Lock* lock) {
  named = true;
  Message message{.kind = MessageKind::kUniqueId};
  lock->unlock();
  const Result result = options.library->GetUniqueId(&message.unique_id);
  lock->lock();
  if (failure.has_value() || closing) return;
  if (result != kSuccess) {
    return Fail(lock, RankOf(options.node), options.library->ToStatus(result, "ncclGetUniqueId"),
                std::nullopt);
  }
  for (const uint32_t node : nodes) PostLocked(node, message);
  Leave(lock);
}

void WorldState::StartMembersLocked(const UniqueId& id) {
  started = true;
  for (const auto& slot : slots) {
    slot->local.issuer->Post([member = slot->member, id] { member->Start(id); });
  }
  changed.notify_all();
}

// Waits for the name of the world, too: it may never come.
void WorldState::RunTimer() {
  Lock lock(mutex);
  while (!stop_timer) {
    if (!wanted_ns.has_value() && !started) {
      changed.wait(lock);
      continue;
    }
    const bool waits = !started && !failure.has_value() && !closing;
    if (waits && !named && options.node == options.root) {
      Name(&lock);
    } else if (waits && MonotonicNanos() - *wanted_ns >= options.init_deadline_ns) {
      Fail(
          &lock, RankOf(options.root),
          absl::DeadlineExceededError("initialising NCCL: the root did not name the world in time"),
          std::nullopt);
    }
    FailUnnamedIfLate(&lock);
    auto haste = started ? Member::Haste::kNone : Member::Haste::kSlow;
    for (const auto& slot : slots) {
      haste = std::max(haste, slot->member->haste());
      if (slot->member->haste() == Member::Haste::kNone || slot->poll_posted) continue;
      slot->poll_posted = true;
      const std::weak_ptr<WorldState> weak = weak_from_this();
      slot->local.issuer->Post([weak, slot = slot.get(), member = slot->member] {
        member->Poll();
        const auto self = weak.lock();
        if (self == nullptr) return;
        const std::lock_guard relock(self->mutex);
        slot->poll_posted = false;
      });
    }
    changed.wait_for(lock, haste == Member::Haste::kFast ? kFastTurn : kSlowTurn);
  }
}

void WorldState::OnMemberUp(Slot* slot) {
  Lock lock(mutex);
  slot->up = true;
  tell_up = std::all_of(slots.begin(), slots.end(), [](const auto& one) { return one->up; });
  Leave(&lock);
}

// Who finds another process gone is not to blame for it, and may find it before the control
// connection to that node is seen to end. Until then all goes on but this rank, and what is opened
// fails with the rest.
void WorldState::OnMemberFailed(uint32_t rank, const absl::Status& status, bool another_gone) {
  Lock lock(mutex);
  if (!another_gone) return Fail(&lock, rank, status, std::nullopt);
  if (failure.has_value() || closing || unnamed.has_value()) return;
  unnamed = Unnamed{rank, status, MonotonicNanos()};
}

void WorldState::FailUnnamedIfLate(Lock* lock) {
  if (!unnamed.has_value()) return;
  if (MonotonicNanos() - unnamed->since_ns < options.naming_deadline_ns) return;
  const Unnamed found = *std::exchange(unnamed, std::nullopt);
  const std::string what = absl::StrCat("NCCL on ", NameOf(found.found_by),
                                        " found another process gone, before any node was missed");
  Fail(lock, kNobody, Annotate(found.reason, what), std::nullopt);
}

std::string WorldState::NameOf(uint32_t rank) const {
  if (rank == kNobody) return "nobody";
  const auto& names = options.name_of_rank;
  return rank < names.size() ? names[rank] : absl::StrCat("GPU rank ", rank);
}

absl::Status WorldState::AsLossLocked() const {
  if (failure->rank == kNobody) return absl::AbortedError(failure->reason.message());
  return absl::AbortedError(
      absl::StrCat("lost ", NameOf(failure->rank), ": ", failure->reason.message()));
}

void WorldState::TellPeers(uint32_t rank, const absl::Status& reason, std::optional<uint32_t> but) {
  for (const uint32_t node : nodes) {
    if (node == options.node || node == but) continue;
    PostLocked(node,
               {.kind = MessageKind::kFailed, .rank = rank, .text = std::string(reason.message())});
  }
}

void WorldState::Fail(Lock* lock, uint32_t rank, const absl::Status& reason,
                      std::optional<uint32_t> told_by) {
  if (failure.has_value() || closing) return;
  failure = Failure{rank, reason};
  // One that nobody uses may well end earlier elsewhere.
  Log(communicators.empty() ? LogLevel::kInfo : LogLevel::kError, "nccl",
      "a world of GPUs has failed",
      {{"lost", NameOf(rank)}, {"reason", std::string(reason.message())}});
  // Who has told us tells the others, too; but it may be what dies.
  TellPeers(rank, reason, told_by);
  std::vector<OperationPtr> all;
  for (const auto& [key, communicator] : communicators) {
    for (const auto& [sequence, operation] : communicator.operations) all.push_back(operation);
  }
  for (const OperationPtr& operation : all) LoseLocked(operation);
  // What was handed to a member stays until its stream is through.
  const auto sent = std::exchange(outgoing, {});
  const auto received = std::exchange(incoming, {});
  to_self.clear();
  for (const auto& slot : slots) {
    slot->pending.clear();
    slot->local.issuer->Post([member = slot->member] { member->Abort(); });
  }
  tell_failure = true;
  changed.notify_all();
  Leave(lock);
}

// Of the participants the one that was lost; if it is none of them, one of its node's, or any other
// node's: all are out of reach now.
uint32_t WorldState::LostOfLocked(const Operation& operation) const {
  if (failure->rank == kNobody) return kNobody;
  const auto& ranks = *operation.world_rank_of;
  auto lost = std::find(ranks.begin(), ranks.end(), failure->rank);
  if (lost == ranks.end()) {
    lost = std::find_if(ranks.begin(), ranks.end(),
                        [&](uint32_t one) { return NodeOf(one) == NodeOf(failure->rank); });
  }
  if (lost == ranks.end()) {
    lost = std::find_if(ranks.begin(), ranks.end(),
                        [&](uint32_t one) { return NodeOf(one) != options.node; });
  }
  if (lost == ranks.end()) lost = ranks.begin();
  return static_cast<uint32_t>(lost - ranks.begin());
}

// The operation of a world that has failed.
void WorldState::LoseLocked(const OperationPtr& operation) {
  FailOperationLocked(operation, LostOfLocked(*operation), AsLossLocked());
  operation->out.clear();
  operation->ahead.clear();
  operation->outgoing = 0;
  ForgetIfOverLocked(operation);
}

void WorldState::Tell(Lock* lock, const OperationPtr& operation) {
  const bool tells_failure = operation->failure.has_value() && !operation->failure_told;
  const bool tells_room = std::exchange(operation->tell_room, false);
  if (operation->sink == nullptr || operation->stopped || !(tells_failure || tells_room)) return;
  if (tells_failure) operation->failure_told = true;
  operation->in_sink.push_back(std::this_thread::get_id());
  Sink* const sink = operation->sink;
  const std::optional<Failure> told = operation->failure;
  lock->unlock();
  if (tells_failure) sink->OnPeerFailed(told->rank, told->reason);
  if (tells_room) sink->OnRoom();
  lock->lock();
  LeaveSinkLocked(operation.get());
}

void WorldState::CallOwner(Lock* lock, const std::function<void()>& call) {
  ++owner_calls;
  lock->unlock();
  call();
  lock->lock();
  if (--owner_calls == 0) changed.notify_all();
}

void WorldState::Leave(Lock* lock) {
  for (;;) {
    if (!to_self.empty()) {
      const Message message = std::move(to_self.front());
      to_self.pop_front();
      const absl::Status status = TakeLocked(options.node, message);
      // Of what others have told us: we do not lie to ourselves.
      if (!status.ok()) Fail(lock, blamed.value_or(RankOf(options.node)), status, std::nullopt);
    } else if (!to_tell.empty()) {
      const OperationPtr operation = std::move(to_tell.front());
      to_tell.pop_front();
      Tell(lock, operation);
    } else if (std::exchange(tell_up, false)) {
      if (failure.has_value() || !options.on_up) continue;
      CallOwner(lock, options.on_up);
    } else if (std::exchange(tell_failure, false)) {
      if (!options.on_failed) continue;
      CallOwner(lock, [this, told = *failure] { options.on_failed(told.rank, told.reason); });
    } else {
      return;
    }
  }
}

void WorldState::PostLocked(uint32_t node, Message message) {
  if (node == options.node) {
    to_self.push_back(std::move(message));
  } else {
    options.control->Send(node, FormatMessage(message));
  }
}

void WorldState::OnMessage(uint32_t node, std::string_view bytes) {
  const absl::StatusOr<Message> message = ParseMessage(bytes);
  Lock lock(mutex);
  if (failure.has_value() || closing || !nodes.contains(node)) return;
  const absl::Status status = message.ok() ? TakeLocked(node, *message) : message.status();
  if (!status.ok()) {
    // A node that lies is as good as lost.
    const uint32_t rank = blamed.value_or(RankOf(node));
    return Fail(&lock, rank, Annotate(status, absl::StrCat("the node of GPU rank ", rank)),
                std::nullopt);
  }
  if (message->kind == MessageKind::kFailed) {
    return Fail(&lock, message->rank, absl::AbortedError(message->text), node);
  }
  Leave(&lock);
}

absl::Status WorldState::TakeLocked(uint32_t node, const Message& message) {
  blamed.reset();
  switch (message.kind) {
    case MessageKind::kUniqueId:
      if (node != options.root || started) {
        return absl::InvalidArgumentError("it names the world, which is not its to do now");
      }
      StartMembersLocked(message.unique_id);
      return absl::OkStatus();
    case MessageKind::kWant:
      WantLocked();
      return absl::OkStatus();
    case MessageKind::kFailed:
      if (message.rank < options.node_of_rank.size() || message.rank == kNobody) {
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError("it tells of a rank that there is not");
    case MessageKind::kOpen:
      return TakeOpen(node, message);
    case MessageKind::kClose:
      return TakeClose(node, message);
    case MessageKind::kAnnounce:
      return TakeAnnounce(node, message);
    case MessageKind::kDeclined:
      return TakeDeclined(node, message);
    case MessageKind::kReady:
      return TakeReady(node, message);
    case MessageKind::kGroup:
      if (node != options.root)
        return absl::InvalidArgumentError("it makes groups, and is no root");
      return TakeGroup(message);
    case MessageKind::kDone:
      return TakeDone(node, message);
  }
  return absl::InternalError("no such message");
}

bool WorldState::End() {
  Lock lock(mutex);
  if (closing) return !left_behind;
  closing = true;
  const auto sent = std::exchange(outgoing, {});
  const auto received = std::exchange(incoming, {});
  communicators.clear();
  to_self.clear();
  to_tell.clear();
  tell_up = tell_failure = false;
  changed.wait(lock, [this] { return owner_calls == 0; });
  for (const auto& slot : slots) {
    slot->local.issuer->Post([member = slot->member] { member->Finish(); });
  }
  changed.notify_all();
  const auto all_ended = [this] {
    return std::all_of(slots.begin(), slots.end(), [](const auto& slot) { return slot->ended; });
  };
  const std::chrono::nanoseconds patience(options.close_deadline_ns);
  if (!changed.wait_for(lock, patience, all_ended)) {
    for (const auto& slot : slots) {
      slot->local.issuer->Post([member = slot->member] { member->Abort(); });
    }
    if (!changed.wait_for(lock, patience, all_ended)) {
      Log(LogLevel::kError, "nccl", "an issuing thread is stuck: a communicator is left behind");
      left_behind = true;
    }
  }
  const bool ended = !left_behind;
  stop_timer = true;
  changed.notify_all();
  lock.unlock();
  timer.join();
  return ended;
}

}  // namespace spccl::transport::nccl
