// Communicators form, end and fail.
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/status.h"
#include "collective/transport/frame_pool.h"
#include "daemon/engine.h"
#include "daemon/join_check.h"
#include "daemon/settings_words.h"
#include "proto/shm/result.h"

namespace spccl::daemon {
namespace {

// A root's daemon, which knows who is missing, gets this much longer to say so than its deadline.
constexpr int64_t kRootGraceNs = 2'000'000'000;

// Between jobs a daemon is as small as it was at the start: what is kept from one operation for the
// next, and what the allocator keeps, goes back to the node. The next job pays some page faults.
void GiveMemoryBack() {
  transport::FramePool::Shared().Trim();
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace

absl::StatusOr<CommEntry*> Engine::FindOrMakeComm(const Asker& asker,
                                                  const UniqueIdBytes& unique_id, uint32_t ranks) {
  SPCCL_ASSIGN_OR_RETURN(const uint64_t known, unique_ids_.Find(unique_id, asker.uid));
  if (known != 0) {
    CommEntry* const entry = registry_.FindComm(known);
    SPCCL_CHECK(entry != nullptr);
    return entry;
  }
  SPCCL_ASSIGN_OR_RETURN(CommEntry* const entry, MakeComm(asker, unique_id, ranks, ""));
  unique_ids_.SetForming(unique_id, entry->comm.id());
  return entry;
}

absl::Status Engine::CheckCommShare(const Asker& asker) const {
  const uint64_t limit = options_.limits.communicators;
  const auto own = static_cast<uint64_t>(
      std::count_if(registry_.comms.begin(), registry_.comms.end(),
                    [&](const auto& entry) { return entry.second->comm.uid() == asker.uid; }));
  if (own < MostOf(limit, asker.uid)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "uid ", asker.uid, " has ", own, " communicators, all that one user may have of the ", limit,
      " (limits.communicators)"));
}

absl::StatusOr<CommEntry*> Engine::MakeComm(const Asker& asker, const UniqueIdBytes& unique_id,
                                            uint32_t ranks, std::string root) {
  if (draining_) {
    return absl::UnavailableError("spccld is draining: it takes no new communicators");
  }
  if (registry_.comms.size() >= options_.limits.communicators) {
    return absl::ResourceExhaustedError(absl::StrCat("spccld has ", registry_.comms.size(),
                                                     " communicators, its limit "
                                                     "(limits.communicators)"));
  }
  SPCCL_RETURN_IF_ERROR(CheckCommShare(asker));
  SPCCL_RETURN_IF_ERROR(CheckCommQuota(asker));
  const uint64_t id = registry_.next_comm_id++;
  auto entry = std::make_unique<CommEntry>(
      Communicator(id, asker.job_id, asker.uid, ranks, std::move(root)));
  entry->unique_id = unique_id;
  ++JobOf(asker.job_id, asker.uid).communicators;
  return registry_.comms.emplace(id, std::move(entry)).first->second.get();
}

// A communicator whose first rank was another node's has that one's job and user, which may mean
// nothing here (a job's name may be a process id). It is the first local rank's as soon as there is
// one: its job's settings hold, and its user sees it.
absl::Status Engine::AdoptComm(const Asker& asker, CommEntry& entry) {
  for (uint32_t rank = 0; rank < entry.comm.ranks(); ++rank) {
    if (entry.comm.joined(rank) && entry.comm.member(rank).local()) return absl::OkStatus();
  }
  const std::string before = entry.comm.job_id();
  if (before != asker.job_id) SPCCL_RETURN_IF_ERROR(CheckCommQuota(asker));
  if (entry.comm.uid() != asker.uid) SPCCL_RETURN_IF_ERROR(CheckCommShare(asker));
  entry.comm.SetOwner(asker.job_id, asker.uid);
  entry.settings.reset();  // of another job
  --registry_.jobs[before].communicators;
  ++JobOf(asker.job_id, asker.uid).communicators;
  ForgetIfIdle(before);
  return absl::OkStatus();
}

absl::Status Engine::JoinComm(Session& session, const shm::Request& request) {
  const auto& wanted = request.comm_init;
  SPCCL_RETURN_IF_ERROR(
      CheckRank(wanted.rank, wanted.ranks, options_.limits.ranks_per_communicator));
  Communicator::Member member;
  member.session_id = session.id;
  member.pid = session.peer.pid;
  member.request_id = request.request_id;
  SPCCL_ASSIGN_OR_RETURN(member.wishes,
                         WishesOf(shm::TextOf(wanted.algorithm), shm::TextOf(wanted.codec)));
  UniqueIdBytes unique_id;
  std::memcpy(unique_id.data(), wanted.unique_id, unique_id.size());
  SPCCL_ASSIGN_OR_RETURN(const UniqueIdParts parts, ParseUniqueId(unique_id));
  const bool is_root = parts.boot_id == boot_id_ || parts.address.empty();
  const Asker asker{.job_id = session.peer.job_id, .uid = session.peer.uid};
  SPCCL_ASSIGN_OR_RETURN(CommEntry* const entry,
                         is_root ? FindOrMakeComm(asker, unique_id, wanted.ranks)
                                 : FindOrMakeRemoteComm(asker, unique_id, wanted.ranks, parts));
  const uint64_t comm_id = entry->comm.id();
  if (const absl::Status adopted = AdoptComm(asker, *entry); !adopted.ok()) {
    FailComm(comm_id, {.status = adopted});
    return adopted;
  }
  int64_t wait_ns =
      wanted.deadline_ms == 0 ? options_.init_timeout_ns : int64_t{wanted.deadline_ms} * 1'000'000;
  if (!is_root) wait_ns += kRootGraceNs;
  member.handle = session.next_handle++;
  const absl::Status joined =
      entry->comm.Join(wanted.rank, wanted.ranks, member, MonotonicNanos() + wait_ns);
  if (!joined.ok()) {
    FailComm(comm_id, {.status = joined, .culprit_rank = -1});
    return joined;
  }
  session.memberships.emplace(member.handle, Membership{.comm_id = comm_id, .rank = wanted.rank});
  if (!is_root) {
    SendJoin(*entry, session, request);
  } else if (entry->comm.state() == Communicator::State::kReady) {
    AnnounceReady(*entry);
  } else if (entry->comm.state() == Communicator::State::kConnecting) {
    BeginForm(*entry);
  }
  return absl::OkStatus();
}

// How frames between GPUs go, where there are any; for people.
std::string Engine::GpuRouteOf(const CommEntry& entry) const {
  if (hooks_.gpus == nullptr || !entry.across()) return "";
  if (entry.group->gpu_generation != 0) return "; frames between GPUs go by NCCL";
  const std::string& why = entry.group->why_no_world;
  return absl::StrCat("; frames between GPUs go through the hosts", why.empty() ? "" : ": ", why);
}

void Engine::AnnounceReady(CommEntry& entry) {
  const Communicator& comm = entry.comm;
  OpenFlight(entry);
  unique_ids_.UseUp(entry.unique_id, absl::FailedPreconditionError(
                                         "the unique id has formed a communicator already"));
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < comm.ranks(); ++rank) names.push_back(comm.NameOfRank(rank));
  entry.rank_names = std::make_shared<const std::vector<std::string>>(std::move(names));
  for (const uint32_t rank : comm.local_ranks()) {
    const Communicator::Member& member = comm.member(rank);
    Session* const session = registry_.FindSession(member.session_id);
    if (session != nullptr) Reply(*session, member.request_id, absl::OkStatus(), member.handle);
  }
  Record("comm-ready", comm.job_id(), comm.id(), comm.uid(),
         absl::StrCat("communicator ", comm.id(), " of ", Counted(comm.ranks(), "rank"),
                      entry.group ? absl::StrCat(" on ", entry.group->nodes.size(), " nodes") : "",
                      GpuRouteOf(entry)));
}

absl::Status Engine::SetCodec(Session& session, const shm::Request& request) {
  const auto found = session.memberships.find(request.comm_codec.comm_id);
  if (found == session.memberships.end()) {
    return absl::NotFoundError(
        absl::StrCat("communicator ", request.comm_codec.comm_id, " is not one of this process"));
  }
  const Membership membership = found->second;
  SPCCL_ASSIGN_OR_RETURN(policy::Overrides wish,
                         WishesOf(/*algorithm=*/"", shm::TextOf(request.comm_codec.codec)));
  SPCCL_RETURN_IF_ERROR(SetLossy(shm::TextOf(request.comm_codec.lossy), &wish));
  SPCCL_RETURN_IF_ERROR(hooks_.change_settings(membership.comm_id, wish));
  const CommEntry* const entry = registry_.FindComm(membership.comm_id);
  SPCCL_CHECK(entry != nullptr);
  Record("settings", entry->comm.job_id(), membership.comm_id, entry->comm.uid(),
         absl::StrCat(entry->comm.NameOfRank(membership.rank), " has set ", Describe(wish)));
  return absl::OkStatus();
}

absl::Status Engine::DestroyComm(Session& session, uint32_t handle, bool abort) {
  const auto found = session.memberships.find(handle);
  if (found == session.memberships.end()) {
    return absl::NotFoundError(
        absl::StrCat("communicator ", handle, " is not one of this process"));
  }
  const Membership membership = found->second;
  CommEntry* const entry = registry_.FindComm(membership.comm_id);
  SPCCL_CHECK(entry != nullptr);
  if (abort) {
    FailComm(membership.comm_id,
             {.status = absl::AbortedError(absl::StrCat(entry->comm.NameOfRank(membership.rank),
                                                        " has aborted the communicator")),
              .culprit_rank = static_cast<int>(membership.rank)});
    // A communicator that was still forming is gone, with all memberships.
    if (registry_.FindComm(membership.comm_id) == nullptr) return absl::OkStatus();
  }
  session.memberships.erase(handle);
  // Who leaves says to the other nodes that it has taken part in all that it has submitted.
  if (entry->across() && entry->comm.Waits(membership.rank)) {
    FailComm(membership.comm_id,
             {.status = absl::AbortedError(
                  absl::StrCat(entry->comm.NameOfRank(membership.rank),
                               " has left the communicator before its operations had begun")),
              .culprit_rank = static_cast<int>(membership.rank)});
  }
  entry->comm.Leave(membership.rank);
  TellLeave(*entry, membership.rank, "has left the communicator");
  Pump(membership.comm_id);  // others may be waiting for an operation that never comes now
  EraseIfAbandoned(membership.comm_id);
  return absl::OkStatus();
}

void Engine::LeaveComm(uint64_t comm_id, uint32_t rank, const std::string& why) {
  CommEntry* entry = registry_.FindComm(comm_id);
  if (entry == nullptr) return;
  // Between nodes its part of the last operation may be over while others still run theirs.
  // acquire: who has seen its completion may end, and we hear of it before Finish().
  const bool runs = entry->running && !entry->running->ended.load(std::memory_order_acquire);
  if (entry->across() && entry->comm.state() == Communicator::State::kReady && !runs &&
      !entry->comm.Waits(rank)) {
    entry->comm.Leave(rank, why);
    TellLeave(*entry, rank, why);
    Pump(comm_id);
    return EraseIfAbandoned(comm_id);
  }
  entry->comm.Leave(rank);
  // The last one out, with nothing running, needs no failure; but other nodes may run what it has
  // submitted, and what is held here while the tuning changes would never be heard of.
  if (!entry->comm.abandoned() || entry->across()) {
    FailComm(comm_id,
             {.status = absl::AbortedError(absl::StrCat(entry->comm.NameOfRank(rank), " ", why)),
              .culprit_rank = static_cast<int>(rank)});
  }
  EraseIfAbandoned(comm_id);
}

// Others leave because this daemon stops, and may be heard of before it ends: to its own ranks the
// stop is the cause.
CommFailure Engine::CauseOf(const CommFailure& seen) const {
  if (!stopping_ || seen.expected) return seen;
  CommFailure cause = seen;
  cause.status = Annotate(absl::UnavailableError(seen.status.message()), kStopping);
  cause.expected = true;
  return cause;
}

void Engine::FailComm(uint64_t comm_id, const CommFailure& seen, NodeId teller) {
  CommEntry* const entry = registry_.FindComm(comm_id);
  if (entry == nullptr || entry->comm.state() == Communicator::State::kFailed) return;
  const CommFailure failure = CauseOf(seen);
  const bool was_forming = entry->comm.forming();
  Communicator& comm = entry->comm;
  Log(LogLevel::kWarning, "comm", "communicator failed",
      {{"comm", absl::StrCat(comm_id)},
       {"job", comm.job_id()},
       {"reason", std::string(failure.status.message())}});
  if (!failure.expected) KeepFlight(*entry, failure.status);
  const uint32_t lost = comm.queued_ops();
  ForEachCounters(*entry, [lost](Counters& counters) { counters.failed_ops += lost; });
  registry_.telemetry.AddCommFailure(failure.status, lost);
  Complete(comm.Fail(failure));
  TellMembers(*entry, was_forming);
  TellFailure(*entry, seen, teller);
  Record("comm-failed", comm.job_id(), comm_id, comm.uid(), std::string(failure.status.message()));
  if (was_forming) {
    unique_ids_.UseUp(entry->unique_id, failure.status);
    EraseIfAbandoned(comm_id);
  } else if (comm.running()) {
    Cancel(*entry, failure);
  }
}

void Engine::TellMembers(CommEntry& entry, bool was_forming) {
  Communicator& comm = entry.comm;
  for (uint32_t rank = 0; rank < comm.ranks(); ++rank) {
    const Communicator::Member& member = comm.member(rank);
    if (!comm.joined(rank) || comm.left(rank) || !member.local()) continue;
    Session* const session = registry_.FindSession(member.session_id);
    if (was_forming) comm.Leave(rank);
    if (session == nullptr) continue;
    if (was_forming) {
      session->memberships.erase(member.handle);
      Reply(*session, member.request_id, comm.error());
      continue;
    }
    shm::Reply notice{};
    notice.magic = shm::kSessionMagic;
    notice.type = shm::ReplyType::kCommFailed;
    notice.result = static_cast<uint32_t>(shm::ResultOf(comm.error()));
    notice.value = member.handle;
    shm::SetText(notice.message,
                 std::string_view(comm.error().message().data(), comm.error().message().size()));
    Send(*session, notice);
  }
}

void Engine::EraseIfAbandoned(uint64_t comm_id) {
  CommEntry* const entry = registry_.FindComm(comm_id);
  if (entry == nullptr || entry->pumping || !entry->comm.abandoned()) return;
  const std::string job_id = entry->comm.job_id();
  Record("comm-gone", job_id, comm_id, entry->comm.uid(),
         absl::StrCat("communicator ", comm_id, " is gone"));
  TakeBackTuning(*entry);
  EndGroup(*entry);
  registry_.comms.erase(comm_id);
  hooks_.forget(comm_id);
  --registry_.jobs[job_id].communicators;
  ForgetIfIdle(job_id);
  if (registry_.comms.empty()) GiveMemoryBack();
}

}  // namespace spccl::daemon
