#include "client/join.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/error.h"

namespace spccl::client {
namespace {

constexpr char kPhase[] = "waiting for all ranks to join";
// Beyond the deadline that the daemon keeps, before it is taken to be stuck.
constexpr int64_t kGraceNs = 10'000'000'000;
// With no deadline of ours the daemon keeps its own; this only ends what it has forgotten.
constexpr int64_t kLongestJoinNs = int64_t{3600} * 1'000'000'000;

absl::StatusOr<uint32_t> DeadlineFromEnvironment() {
  const char* text = std::getenv("SPCCL_INIT_TIMEOUT_MS");
  if (text == nullptr || *text == '\0') return 0;
  uint32_t milliseconds = 0;
  const char* end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, milliseconds);
  if (error != std::errc() || stopped != end || milliseconds == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("SPCCL_INIT_TIMEOUT_MS is \"", text, "\", expected milliseconds above 0"));
  }
  return milliseconds;
}

template <size_t N>
absl::Status TextFromEnvironment(const char* name, char (&field)[N]) {
  const char* text = std::getenv(name);
  if (text == nullptr) return absl::OkStatus();
  if (std::strlen(text) >= N) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is \"", std::string(text, N - 1),
                                                   "\"..., longer than any valid value"));
  }
  shm::SetText(field, text);
  return absl::OkStatus();
}

absl::StatusOr<shm::Request> RequestFor(const JoinRequest& join) {
  shm::Request request{};
  request.type = shm::RequestType::kCommInit;
  static_assert(sizeof(join.id.internal) == sizeof(request.comm_init.unique_id));
  std::memcpy(request.comm_init.unique_id, join.id.internal, sizeof join.id.internal);
  request.comm_init.ranks = static_cast<uint32_t>(join.ranks);
  request.comm_init.rank = static_cast<uint32_t>(join.rank);
  SPCCL_ASSIGN_OR_RETURN(request.comm_init.deadline_ms, DeadlineFromEnvironment());
  SPCCL_RETURN_IF_ERROR(TextFromEnvironment("SPCCL_ALGO", request.comm_init.algorithm));
  SPCCL_RETURN_IF_ERROR(TextFromEnvironment("SPCCL_CODEC", request.comm_init.codec));
  return request;
}

void AbortAll(const std::vector<std::shared_ptr<Comm>>& comms) {
  for (const auto& comm : comms) (void)CatchAll([&] { return comm->Abort(); });
}

struct Joining {
  std::shared_ptr<Session::Call> call;
  int64_t timeout_ns;
};

absl::Status StartAll(Session& session, const std::vector<JoinRequest>& joins,
                      std::vector<Joining>* joining) {
  std::vector<shm::Request> requests;
  for (const JoinRequest& join : joins) {
    SPCCL_ASSIGN_OR_RETURN(requests.emplace_back(), RequestFor(join));
  }
  joining->reserve(requests.size());
  for (const shm::Request& request : requests) {
    const int64_t deadline_ns = int64_t{request.comm_init.deadline_ms} * 1'000'000;
    SPCCL_ASSIGN_OR_RETURN(auto call, session.Start(request));
    joining->push_back(
        {std::move(call), deadline_ns > 0 ? deadline_ns + kGraceNs : kLongestJoinNs});
  }
  return absl::OkStatus();
}

// All of these, or an error and none. `comms` has room for them.
absl::Status AwaitAll(const std::shared_ptr<Session>& session,
                      const std::vector<JoinRequest>& requests, const std::vector<Joining>& joining,
                      std::vector<std::shared_ptr<Comm>>* comms) {
  absl::Status first_error;
  for (size_t i = 0; i < joining.size(); ++i) {
    const absl::Status status = CatchAll([&]() -> absl::Status {
      SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply,
                             session->Await(joining[i].call, kPhase, joining[i].timeout_ns));
      comms->push_back(std::make_shared<Comm>(session, static_cast<uint32_t>(reply.value),
                                              requests[i].rank, requests[i].ranks));
      return absl::OkStatus();
    });
    if (status.ok()) continue;
    session->Abandon(joining[i].call);
    if (first_error.ok()) first_error = status;
  }
  if (!first_error.ok()) AbortAll(*comms);
  return first_error;
}

// Gives handles out for all of them, or for none.
absl::Status Publish(Process& process, const std::vector<std::shared_ptr<Comm>>& comms,
                     const std::vector<JoinRequest>& requests) {
  std::vector<void*> handles;
  const absl::Status status = CatchAll([&]() -> absl::Status {
    handles.reserve(comms.size());
    for (const auto& comm : comms) handles.push_back(process.comms().Add(comm));
    return absl::OkStatus();
  });
  if (!status.ok()) {
    for (void* handle : handles) {
      (void)CatchAll([&] { return process.comms().Remove(handle).status(); });
    }
    AbortAll(comms);
    return status;
  }
  for (size_t i = 0; i < comms.size(); ++i) {
    *requests[i].out = static_cast<spcclComm_t>(handles[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRanks(int ranks) {
  if (ranks >= 1 && static_cast<uint32_t>(ranks) <= shm::kMostRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("nranks is ", ranks, ", expected 1 to ", shm::kMostRanks));
}

absl::Status CheckJoin(const JoinRequest& request) {
  if (request.out == nullptr) return absl::InvalidArgumentError("comm is NULL");
  SPCCL_RETURN_IF_ERROR(CheckRanks(request.ranks));
  if (request.rank < 0 || request.rank >= request.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", request.rank, ", nranks ", request.ranks));
  }
  return absl::OkStatus();
}

absl::Status Join(Process& process, const std::vector<JoinRequest>& requests) {
  if (process.comms().size() + requests.size() > shm::kCompletionCapacity) {
    return absl::FailedPreconditionError(
        absl::StrCat("a process may hold at most ", shm::kCompletionCapacity, " communicators"));
  }
  SPCCL_RETURN_IF_ERROR(process.gpu().memory().Look());
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, process.LiveSession());
  std::vector<std::shared_ptr<Comm>> comms;
  comms.reserve(requests.size());
  std::vector<Joining> joining;
  const absl::Status started = CatchAll([&] { return StartAll(*session, requests, &joining); });
  if (!started.ok()) {
    for (const Joining& each : joining) session->Abandon(each.call);
    return started;
  }
  SPCCL_RETURN_IF_ERROR(AwaitAll(session, requests, joining, &comms));
  process.gpu().Prepare(session);
  return Publish(process, comms, requests);
}

}  // namespace spccl::client
