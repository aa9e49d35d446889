// The C API but for the collectives (api_collectives.cc): argument checks and handles.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/memory.h"
#include "base/status.h"
#include "client/api_border.h"
#include "client/codec.h"
#include "client/error.h"
#include "client/group.h"
#include "client/include/spccl/spccl.h"
#include "client/join.h"
#include "client/process.h"

namespace spccl::client {
namespace {

absl::Status JoinOrCollect(const std::vector<JoinRequest>& joins) {
  for (const JoinRequest& join : joins) SPCCL_RETURN_IF_ERROR(CheckJoin(join));
  Group& group = Group::OfThread();
  if (!group.active()) return Join(Process::Get(), joins);
  for (const JoinRequest& join : joins) group.Add(join);
  return absl::OkStatus();
}

// As Enter, for a call that a group collects: it will not be started after an error.
template <typename Body>
spcclResult_t EnterInGroup(const char* function, Body body) noexcept {
  return Enter(function, [&] {
    const absl::Status status = CatchAll(body);
    Group::OfThread().NoteError(status);
    return status;
  });
}

absl::StatusOr<spcclUniqueId> NewUniqueId() {
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, Process::Get().LiveSession());
  shm::Request request{};
  request.type = shm::RequestType::kUniqueId;
  SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply, session->Ask(request, "asking for a unique id"));
  spcclUniqueId id;
  static_assert(sizeof id.internal == sizeof reply.payload);
  std::memcpy(id.internal, reply.payload, sizeof id.internal);
  return id;
}

absl::Status InitAll(spcclComm_t* comms, int nranks) {
  SPCCL_RETURN_IF_ERROR(CheckOutput(comms, "comms"));
  SPCCL_RETURN_IF_ERROR(CheckRanks(nranks));  // before there are so many requests and handles
  SPCCL_ASSIGN_OR_RETURN(const spcclUniqueId id, NewUniqueId());
  std::vector<JoinRequest> joins;
  for (int rank = 0; rank < nranks; ++rank) joins.push_back({&comms[rank], nranks, id, rank});
  return JoinOrCollect(joins);
}

void DropRegistrations(Process& process, const std::shared_ptr<Comm>& comm) {
  comm->DeregisterAll(&process.memory());
  process.registrations().RemoveIf([&](const Registration& registration) {
    if (registration.comm != comm) return false;
    if (registration.buffer != nullptr) process.gpu().Deregister(registration.buffer);
    return true;
  });
}

absl::Status DestroyComm(spcclComm_t handle) {
  Process& process = Process::Get();
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Comm> comm, process.comms().Find(handle));
  const absl::Status status = comm->Destroy();
  DropRegistrations(process, comm);
  (void)process.comms().Remove(handle);  // an abort in the meantime may have been first
  return status;
}

absl::Status AbortComm(spcclComm_t handle) {
  Process& process = Process::Get();
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Comm> comm, process.comms().Find(handle));
  absl::Status status = comm->Abort();
  if (!status.ok()) process.Keep(comm);
  (void)process.comms().Remove(handle);
  DropRegistrations(process, comm);
  return status;
}

absl::Status RegisterMemory(Process& process, const std::shared_ptr<Comm>& comm, void* buff,
                            size_t size, void** handle) {
  SPCCL_RETURN_IF_ERROR(CheckOutput(handle, "handle"));
  SPCCL_RETURN_IF_ERROR(CheckOutput(buff, "buff"));
  if (size == 0) return absl::InvalidArgumentError("size is 0");
  SPCCL_RETURN_IF_ERROR(process.gpu().memory().Look());
  SPCCL_ASSIGN_OR_RETURN(const auto device, process.gpu().memory().Find(buff));
  if (device != nullptr) {
    SPCCL_RETURN_IF_ERROR(comm->Accepts());
    SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<CudaBuffer> buffer,
                           process.gpu().Register(comm->session(), *device, buff, size));
    absl::Status status = CatchAll([&] {
      *handle = process.registrations().Add(
          std::make_shared<Registration>(Registration{comm, nullptr, buffer}));
      return absl::OkStatus();
    });
    if (!status.ok() && buffer != nullptr) process.gpu().Deregister(buffer);
    return status;
  }
  SPCCL_RETURN_IF_ERROR(CheckMapped(buff, size));
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> region,
                         comm->Register(&process.memory(), buff, size));
  absl::Status status = CatchAll([&] {
    *handle = process.registrations().Add(
        std::make_shared<Registration>(Registration{comm, region, nullptr}));
    return absl::OkStatus();
  });
  if (!status.ok()) (void)comm->Deregister(&process.memory(), region);
  return status;
}

absl::Status DeregisterMemory(Process& process, const std::shared_ptr<Comm>& comm, void* handle) {
  if (handle == nullptr) return absl::OkStatus();
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Registration> registration,
                         process.registrations().Find(handle));
  if (registration->comm != comm) {
    return absl::FailedPreconditionError("the registration is another communicator's");
  }
  if (registration->region != nullptr) {
    SPCCL_RETURN_IF_ERROR(comm->Deregister(&process.memory(), registration->region));
  } else if (registration->buffer != nullptr) {
    process.gpu().Deregister(registration->buffer);
  }
  (void)process.registrations().Remove(handle);
  return absl::OkStatus();
}

absl::Status DestroyStream(spcclStream_t handle) {
  HandleTable<Stream>& streams = Process::Get().streams();
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, streams.Find(handle));
  stream->WaitAll();
  SPCCL_RETURN_IF_ERROR(streams.Remove(handle).status());
  stream->Shutdown();
  return stream->TakeError();
}

// The text of spcclGetLastError: the communicator's, or the thread's.
std::string LastErrorText(spcclComm_t handle) {
  if (handle != nullptr) {
    if (const auto comm = Process::Get().comms().Find(handle); comm.ok())
      return (*comm)->LastError();
  }
  return ThreadLastError();
}

}  // namespace
}  // namespace spccl::client

// C functions can be in no namespace, and these speak of nothing but the library's parts.
using namespace spccl::client;  // NOLINT(google-build-using-namespace)

extern "C" {

spcclResult_t spcclGetVersion(int* version) {
  return Enter(__func__, [&]() -> absl::Status {
    SPCCL_RETURN_IF_ERROR(CheckOutput(version, "version"));
    *version = SPCCL_VERSION_CODE;
    return absl::OkStatus();
  });
}

const char* spcclGetErrorString(spcclResult_t result) {
  return TextOfResult(static_cast<int>(CodeOf(result)));
}

const char* spcclGetLastError(const spcclComm_t comm) {
  thread_local std::string text;
  Enter(__func__, [&] {
    text = LastErrorText(comm);
    return absl::OkStatus();
  });
  return text.c_str();
}

spcclResult_t spcclGetUniqueId(spcclUniqueId* uniqueId) {
  return Enter(__func__, [&]() -> absl::Status {
    SPCCL_RETURN_IF_ERROR(CheckOutput(uniqueId, "uniqueId"));
    SPCCL_ASSIGN_OR_RETURN(*uniqueId, NewUniqueId());
    return absl::OkStatus();
  });
}

spcclResult_t spcclCommInitRank(spcclComm_t* comm, int nranks, spcclUniqueId commId, int rank) {
  return EnterInGroup(__func__, [&] { return JoinOrCollect({{comm, nranks, commId, rank}}); });
}

spcclResult_t spcclCommInitAll(spcclComm_t* comms, int nranks, const int* devlist) {
  return EnterInGroup(__func__, [&] { return InitAll(comms, nranks); });
}

spcclResult_t spcclCommDestroy(spcclComm_t comm) {
  return Enter(__func__, [&] { return DestroyComm(comm); });
}

spcclResult_t spcclCommAbort(spcclComm_t comm) {
  return Enter(__func__, [&] { return AbortComm(comm); });
}

spcclResult_t spcclCommGetAsyncError(spcclComm_t comm, spcclResult_t* asyncError) {
  return EnterComm(__func__, comm, [&](Process&, const auto& found) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(CheckOutput(asyncError, "asyncError"));
    // Of operations on GPUs nobody waits for the completions.
    found->session()->rings().Drain();
    const absl::Status health = found->Health();
    if (!health.ok()) found->SetLastError(health.message());
    *asyncError = ResultOfStatus(health);
    return absl::OkStatus();
  });
}

spcclResult_t spcclCommSetCodec(spcclComm_t comm, spcclCodec_t codec,
                                const spcclCodecOptions* options) {
  return EnterComm(__func__, comm, [&](Process&, const auto& found) -> absl::Status {
    SPCCL_ASSIGN_OR_RETURN(const CodecWish wish, WishOf(CodeOf(codec), options));
    return found->SetCodec(wish);
  });
}

spcclResult_t spcclCommCount(const spcclComm_t comm, int* count) {
  return EnterComm(__func__, comm, [&](Process&, const auto& found) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(CheckOutput(count, "count"));
    *count = found->ranks();
    return absl::OkStatus();
  });
}

spcclResult_t spcclCommUserRank(const spcclComm_t comm, int* rank) {
  return EnterComm(__func__, comm, [&](Process&, const auto& found) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(CheckOutput(rank, "rank"));
    *rank = found->rank();
    return absl::OkStatus();
  });
}

spcclResult_t spcclCommRegister(const spcclComm_t comm, void* buff, size_t size, void** handle) {
  return EnterComm(__func__, comm, [&](Process& process, const auto& found) {
    return RegisterMemory(process, found, buff, size, handle);
  });
}

spcclResult_t spcclCommDeregister(const spcclComm_t comm, void* handle) {
  return EnterComm(__func__, comm, [&](Process& process, const auto& found) {
    return DeregisterMemory(process, found, handle);
  });
}

spcclResult_t spcclMemAlloc(void** ptr, size_t size) {
  return Enter(__func__, [&]() -> absl::Status {
    SPCCL_RETURN_IF_ERROR(CheckOutput(ptr, "ptr"));
    SPCCL_ASSIGN_OR_RETURN(*ptr, Process::Get().memory().Allocate(size));
    return absl::OkStatus();
  });
}

spcclResult_t spcclMemFree(void* ptr) {
  return Enter(__func__, [&] { return Process::Get().memory().Free(ptr); });
}

spcclResult_t spcclGroupStart(void) {
  return Enter(__func__, [&] {
    Group::OfThread().Start(Process::Get());
    return absl::OkStatus();
  });
}

spcclResult_t spcclGroupEnd(void) {
  return Enter(__func__, [&] { return Group::OfThread().End(Process::Get()); });
}

spcclResult_t spcclStreamCreate(spcclStream_t* stream) {
  return Enter(__func__, [&]() -> absl::Status {
    SPCCL_RETURN_IF_ERROR(CheckOutput(stream, "stream"));
    *stream = static_cast<spcclStream_t>(Process::Get().streams().Add(std::make_shared<Stream>()));
    return absl::OkStatus();
  });
}

spcclResult_t spcclStreamQuery(spcclStream_t stream) {
  bool busy = false;
  const spcclResult_t result = Enter(__func__, [&]() -> absl::Status {
    SPCCL_ASSIGN_OR_RETURN(const auto found, Process::Get().streams().Find(stream));
    busy = found->Busy();
    return busy ? absl::OkStatus() : found->Error();
  });
  return busy ? spcclInProgress : result;
}

spcclResult_t spcclStreamSynchronize(spcclStream_t stream) {
  return Enter(__func__, [&]() -> absl::Status {
    SPCCL_ASSIGN_OR_RETURN(const auto found, Process::Get().streams().Find(stream));
    found->WaitAll();
    return found->TakeError();
  });
}

spcclResult_t spcclStreamDestroy(spcclStream_t stream) {
  return Enter(__func__, [&] { return DestroyStream(stream); });
}

}  // extern "C"
