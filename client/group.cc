#include "client/group.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "client/gpu_call.h"

namespace spccl::client {
namespace {

// A launch that has begun, one of the two: an operation on host memory, or what is left to be put
// on a CUDA stream.
struct Begun {
  std::shared_ptr<Operation> op;
  std::unique_ptr<GpuEnqueue> enqueue;
};

// `slot`: of a launch on a GPU's memory. `may_block`: staged operations may run on this thread.
absl::StatusOr<Begun> Begin(Process& process, const Launch& launch, std::unique_ptr<OrderSlot> slot,
                            bool may_block) {
  SPCCL_RETURN_IF_ERROR(launch.comm->Accepts());
  Begun begun;
  if (launch.gpu) {
    SPCCL_ASSIGN_OR_RETURN(
        begun.enqueue,
        process.gpu().Begin(launch.comm, launch.call, launch.bytes, *launch.gpu, std::move(slot)));
    return begun;
  }
  SPCCL_ASSIGN_OR_RETURN(begun.op, Operation::Create(launch.comm, launch.call, launch.bytes,
                                                     process.memory(), &process.staging()));
  if (launch.is_detached) begun.op->Detach();
  Stream& stream = launch.stream != nullptr ? *launch.stream : *launch.comm->null_stream();
  SPCCL_RETURN_IF_ERROR(stream.Enqueue(begun.op, may_block));
  return begun;
}

// Null for a launch on host memory, and where there is no room now.
absl::StatusOr<std::unique_ptr<OrderSlot>> TakeSlot(Process& process, const Launch& launch,
                                                    bool may_wait) {
  if (!launch.gpu) return std::unique_ptr<OrderSlot>();
  SPCCL_RETURN_IF_ERROR(launch.comm->Accepts());
  return process.gpu().TakeSlot(launch.comm, *launch.gpu, may_wait);
}

absl::Status EnqueueEnd(Process& process, const Launch& launch, const Begun& begun) {
  return begun.enqueue == nullptr ? absl::OkStatus()
                                  : process.gpu().End(*launch.gpu, begun.enqueue.get());
}

// The launches of a group, by their numbers, in rounds: a communicator has one in a round, so that
// of several ranks of one thread none fills what they share (rings, slots, a CUDA stream) before
// the others have called what it waits for. Those of a communicator, and of a host stream, keep
// their order.
std::vector<std::vector<size_t>> RoundsOf(const std::vector<Launch>& launches) {
  std::unordered_map<const Comm*, size_t> next;
  std::unordered_map<const Stream*, size_t> last;
  std::vector<std::vector<size_t>> rounds;
  for (size_t i = 0; i < launches.size(); ++i) {
    size_t round = next[launches[i].comm.get()];
    if (const Stream* const stream = launches[i].stream.get()) {
      round = last[stream] = std::max(round, last[stream]);
    }
    next[launches[i].comm.get()] = round + 1;
    if (rounds.size() <= round) rounds.resize(round + 1);
    rounds[round].push_back(i);
  }
  return rounds;
}

// The order of each of these launches' communicators, where it matters: on GPU memory. Always in
// the same order of communicators, as another thread's group may have them too.
using Orders = std::map<Comm*, std::unique_lock<std::mutex>>;
Orders LockOrders(const std::vector<Launch>& launches, const std::vector<size_t>& round) {
  Orders orders;
  for (const size_t i : round) {
    if (launches[i].gpu) orders.try_emplace(launches[i].comm.get());
  }
  for (auto& [comm, lock] : orders) lock = std::unique_lock(comm->gpu_order());
  return orders;
}

// One round of a group: the first halves of all, then the second.
class Round {
 public:
  using Note = std::function<void(const Launch&, const absl::Status&)>;
  Round(Process& process, const std::vector<Launch>& launches, Note note,
        std::vector<std::optional<Begun>>* begun)
      : process_(process), launches_(launches), note_(std::move(note)), begun_(*begun) {}

  void Run(const std::vector<size_t>& numbers) {
    orders_ = LockOrders(launches_, numbers);
    for (const size_t i : numbers) {
      auto one = BeginOne(launches_[i]);
      note_(launches_[i], one.status());
      if (!one.ok()) continue;
      begun_[i] = *std::move(one);
      open_.push_back(i);
    }
    for (const size_t i : open_) End(i);
  }

 private:
  absl::StatusOr<Begun> BeginOne(const Launch& launch) {
    SPCCL_ASSIGN_OR_RETURN(auto slot, TakeSlot(process_, launch, /*may_wait=*/false));
    if (launch.gpu && slot == nullptr) {
      EndThoseOnOtherStreams(launch.gpu->stream);
      SPCCL_ASSIGN_OR_RETURN(slot, TakeSlot(process_, launch, /*may_wait=*/true));
    }
    return Begin(process_, launch, std::move(slot), /*may_block=*/false);
  }
  // What a launch waits for before it can begin may be behind these. Behind those on its own stream
  // is its own beginning.
  void EndThoseOnOtherStreams(cuda::Stream stream) {
    std::erase_if(open_, [&](size_t i) {
      const std::optional<GpuCall>& gpu = launches_[i].gpu;
      if (gpu && gpu->stream == stream) return false;
      End(i);
      return true;
    });
  }
  void End(size_t i) {
    note_(launches_[i], EnqueueEnd(process_, launches_[i], *begun_[i]));
    orders_.erase(launches_[i].comm.get());
  }

  Process& process_;
  const std::vector<Launch>& launches_;
  const Note note_;
  std::vector<std::optional<Begun>>& begun_;
  Orders orders_;
  std::vector<size_t> open_;  // have begun, and have no end yet
};

absl::Status ResultOnNullStream(Operation& op) {
  op.comm().null_stream()->Wait(op);
  return op.result();
}

}  // namespace

absl::Status LaunchNow(Process& process, const Launch& launch) {
  const bool waits = launch.waits();
  // Before the order, which a thread may want that calls for the other ranks.
  SPCCL_ASSIGN_OR_RETURN(auto slot, TakeSlot(process, launch, /*may_wait=*/true));
  std::unique_lock<std::mutex> order;
  if (launch.gpu) order = std::unique_lock(launch.comm->gpu_order());
  SPCCL_ASSIGN_OR_RETURN(const Begun begun, Begin(process, launch, std::move(slot), waits));
  SPCCL_RETURN_IF_ERROR(EnqueueEnd(process, launch, begun));
  return waits ? ResultOnNullStream(*begun.op) : absl::OkStatus();
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
  std::vector<std::optional<Begun>> begun(launches_.size());
  for (const std::vector<size_t>& numbers : RoundsOf(launches_)) {
    Round(process, launches_, note, &begun).Run(numbers);
  }
  for (size_t i = 0; i < launches_.size(); ++i) {
    if (begun[i] && launches_[i].waits()) note(launches_[i], ResultOnNullStream(*begun[i]->op));
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
