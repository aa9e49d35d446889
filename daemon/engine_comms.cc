// Communicators form, end and fail.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "proto/shm/result.h"

namespace spccl::daemon {
namespace {

absl::StatusOr<policy::Overrides> WishesOf(const shm::Request& request) {
  policy::Overrides wishes;
  const std::string_view algorithm = shm::TextOf(request.comm_init.algorithm);
  const std::string_view codec = shm::TextOf(request.comm_init.codec);
  if (!algorithm.empty()) {
    wishes.algorithm = policy::AlgorithmFromName(algorithm);
    if (!wishes.algorithm) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown algorithm: ", std::string(algorithm)));
    }
  }
  if (!codec.empty()) {
    wishes.codec = policy::CodecFromName(codec);
    if (!wishes.codec) {
      return absl::InvalidArgumentError(absl::StrCat("unknown codec: ", std::string(codec)));
    }
  }
  return wishes;
}

absl::Status CheckSize(uint32_t rank, uint32_t ranks, uint64_t most) {
  if (ranks == 0 || ranks > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("a communicator of ", ranks, " ranks: 1 to ", most, " are possible"));
  }
  if (rank >= ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", ranks));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommEntry*> Engine::FindOrMakeComm(Session& session, const UniqueIdBytes& unique_id,
                                                  uint32_t ranks) {
  SPCCL_ASSIGN_OR_RETURN(const uint64_t known, unique_ids_.Find(unique_id, session.peer.uid));
  if (known != 0) {
    CommEntry* const entry = registry_.FindComm(known);
    SPCCL_CHECK(entry != nullptr);
    return entry;
  }
  if (draining_) {
    return absl::UnavailableError("spccld is draining: it takes no new communicators");
  }
  if (registry_.comms.size() >= options_.limits.communicators) {
    return absl::ResourceExhaustedError(absl::StrCat("spccld has ", registry_.comms.size(),
                                                     " communicators, its limit "
                                                     "(max_communicators)"));
  }
  const uint64_t id = registry_.next_comm_id++;
  auto entry =
      std::make_unique<CommEntry>(Communicator(id, session.peer.job_id, session.peer.uid, ranks));
  entry->unique_id = unique_id;
  unique_ids_.SetForming(unique_id, id);
  ++registry_.jobs[session.peer.job_id].communicators;
  return registry_.comms.emplace(id, std::move(entry)).first->second.get();
}

absl::Status Engine::JoinComm(Session& session, const shm::Request& request) {
  const auto& wanted = request.comm_init;
  SPCCL_RETURN_IF_ERROR(
      CheckSize(wanted.rank, wanted.ranks, options_.limits.ranks_per_communicator));
  Communicator::Member member;
  member.session_id = session.id;
  member.pid = session.peer.pid;
  member.request_id = request.request_id;
  SPCCL_ASSIGN_OR_RETURN(member.wishes, WishesOf(request));
  UniqueIdBytes unique_id;
  std::memcpy(unique_id.data(), wanted.unique_id, unique_id.size());
  SPCCL_ASSIGN_OR_RETURN(CommEntry* const entry, FindOrMakeComm(session, unique_id, wanted.ranks));
  const uint64_t comm_id = entry->comm.id();
  const int64_t wait_ns =
      wanted.deadline_ms == 0 ? options_.init_timeout_ns : int64_t{wanted.deadline_ms} * 1'000'000;
  member.handle = session.next_handle++;
  const absl::Status joined =
      entry->comm.Join(wanted.rank, wanted.ranks, member, MonotonicNanos() + wait_ns);
  if (!joined.ok()) {
    FailComm(comm_id, {.status = joined, .culprit_rank = -1});
    return joined;
  }
  session.memberships.emplace(member.handle, Membership{.comm_id = comm_id, .rank = wanted.rank});
  if (entry->comm.state() == Communicator::State::kReady) AnnounceReady(*entry);
  return absl::OkStatus();
}

void Engine::AnnounceReady(CommEntry& entry) {
  const Communicator& comm = entry.comm;
  unique_ids_.UseUp(entry.unique_id, absl::FailedPreconditionError(
                                         "the unique id has formed a communicator already"));
  for (uint32_t rank = 0; rank < comm.ranks(); ++rank) {
    const Communicator::Member& member = comm.member(rank);
    Session* const session = registry_.FindSession(member.session_id);
    if (session != nullptr) Reply(*session, member.request_id, absl::OkStatus(), member.handle);
  }
  Record("comm-ready", comm.job_id(), comm.id(), comm.uid(),
         absl::StrCat("communicator ", comm.id(), " of ", comm.ranks(), " ranks"));
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
  entry->comm.Leave(membership.rank);
  Pump(membership.comm_id);  // others may be waiting for an operation that never comes now
  EraseIfAbandoned(membership.comm_id);
  return absl::OkStatus();
}

void Engine::LeaveComm(uint64_t comm_id, uint32_t rank, const std::string& why) {
  CommEntry* entry = registry_.FindComm(comm_id);
  if (entry == nullptr) return;
  entry->comm.Leave(rank);
  // The last one out, with nothing running, needs no failure.
  if (!entry->comm.abandoned()) {
    FailComm(comm_id,
             {.status = absl::AbortedError(absl::StrCat(entry->comm.NameOfRank(rank), " ", why)),
              .culprit_rank = static_cast<int>(rank)});
  }
  EraseIfAbandoned(comm_id);
}

void Engine::FailComm(uint64_t comm_id, const CommFailure& failure) {
  CommEntry* const entry = registry_.FindComm(comm_id);
  if (entry == nullptr || entry->comm.state() == Communicator::State::kFailed) return;
  const bool was_forming = entry->comm.state() == Communicator::State::kForming;
  Communicator& comm = entry->comm;
  Log(LogLevel::kWarning, "comm", "communicator failed",
      {{"comm", absl::StrCat(comm_id)},
       {"job", comm.job_id()},
       {"reason", std::string(failure.status.message())}});
  const uint32_t lost = comm.queued_ops();
  ForEachCounters(*entry, [lost](Counters& counters) { counters.failed_ops += lost; });
  Complete(comm.Fail(failure));
  TellMembers(*entry, was_forming);
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
    if (!comm.joined(rank) || comm.left(rank)) continue;
    const Communicator::Member& member = comm.member(rank);
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
    notice.result = static_cast<uint32_t>(shm::ResultOf(comm.error().code()));
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
  registry_.comms.erase(comm_id);
  hooks_.forget(comm_id);
  --registry_.jobs[job_id].communicators;
  registry_.ForgetIfEmpty(job_id);
}

}  // namespace spccl::daemon
