#include "client/group.h"

#include <utility>

#include "base/status.h"

namespace spccl::client {
namespace {

// The operation, started; `may_block`: staged operations may run on this thread. Null: it is on a
// CUDA stream.
absl::StatusOr<std::shared_ptr<Operation>> Begin(Process& process, const Launch& launch,
                                                 bool may_block) {
  SPCCL_RETURN_IF_ERROR(launch.comm->Accepts());
  if (launch.gpu) {
    SPCCL_RETURN_IF_ERROR(
        process.gpu().Launch(launch.comm, launch.call, launch.bytes, *launch.gpu));
    return std::shared_ptr<Operation>();
  }
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Operation> op,
                         Operation::Create(launch.comm, launch.call, launch.bytes, process.memory(),
                                           &process.staging()));
  Stream& stream = launch.stream != nullptr ? *launch.stream : *launch.comm->null_stream();
  SPCCL_RETURN_IF_ERROR(stream.Enqueue(op, may_block));
  return op;
}

absl::Status ResultOnNullStream(Operation& op) {
  op.comm().null_stream()->Wait(op);
  return op.result();
}

}  // namespace

absl::Status LaunchNow(Process& process, const Launch& launch) {
  const bool waits = launch.waits();
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<Operation> op, Begin(process, launch, waits));
  return waits ? ResultOnNullStream(*op) : absl::OkStatus();
}

Group& Group::OfThread() {
  thread_local Group group;
  return group;
}

void Group::Start(Process& process) {
  if (depth_++ == 0) process_ = &process;
}

void Group::Add(JoinRequest join) {
  *join.out = nullptr;
  joins_.push_back(join);
}

void Group::NoteError(const absl::Status& status) {
  if (depth_ > 0 && first_error_.ok()) first_error_ = status;
}

absl::Status Group::LaunchAll(Process& process) {
  absl::Status first_error;
  const auto note = [&](const Launch& launch, const absl::Status& status) {
    if (status.ok()) return;
    launch.comm->SetLastError(std::string(status.message()));
    if (first_error.ok()) first_error = status;
  };
  std::vector<std::shared_ptr<Operation>> awaited(launches_.size());
  for (size_t i = 0; i < launches_.size(); ++i) {
    auto op = Begin(process, launches_[i], /*may_block=*/false);
    note(launches_[i], op.status());
    if (op.ok() && launches_[i].waits()) awaited[i] = *std::move(op);
  }
  for (size_t i = 0; i < launches_.size(); ++i) {
    if (awaited[i] != nullptr) note(launches_[i], ResultOnNullStream(*awaited[i]));
  }
  return first_error;
}

absl::Status Group::End(Process& process) {
  if (depth_ == 0) {
    return absl::FailedPreconditionError("spcclGroupEnd without spcclGroupStart");
  }
  if (--depth_ > 0) return absl::OkStatus();
  absl::Status status = std::exchange(first_error_, absl::OkStatus());
  if (status.ok() && process_ != &process) {
    status = absl::FailedPreconditionError("the group was started before fork()");
  }
  if (status.ok() && !joins_.empty()) status = Join(process, joins_);
  if (status.ok()) status = LaunchAll(process);
  Clear();
  return status;
}

void Group::Clear() {
  joins_.clear();
  launches_.clear();
}

}  // namespace spccl::client
