#include "client/group.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "client/error.h"
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
absl::StatusOr<std::unique_ptr<OrderSlot>> TakeSlot(
    Process& process, const Launch& launch, StreamOrder::Room room = StreamOrder::Room::kUsual) {
  if (!launch.gpu) return std::unique_ptr<OrderSlot>();
  SPCCL_RETURN_IF_ERROR(launch.comm->Accepts());
  return process.gpu().TakeSlot(launch.comm, *launch.gpu, room);
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

// One round of a group: the first halves of all launches, then the second. Nobody waits for room in
// it with what others may need, slots or orders, in hand: what finds none goes later, and with it
// what shares its stream, whose second half must not come before its first. But where one of these
// has room, the others get the last slot of their share, which is kept for that: a rank's calls
// before may wait for another rank of this thread, for just what is here held back with it. For
// lack of memory it stops, with an exception; what has begun by then has its second half.
class Round {
 public:
  using Note = std::function<void(const Launch&, const absl::Status&)>;
  Round(Process& process, const std::vector<Launch>& launches, Note note,
        std::vector<std::optional<Begun>>* begun)
      : process_(process), launches_(launches), note_(std::move(note)), begun_(*begun) {}

  void Run(std::vector<size_t> numbers) {
    while (!numbers.empty()) {
      Rings& rings = launches_[numbers.front()].comm->session()->rings();
      const uint32_t seen = rings.Seen();
      numbers = RunThoseWithRoom(numbers);
      if (!numbers.empty()) rings.WaitForProgress(seen);
    }
  }

 private:
  using Slots = std::map<size_t, std::unique_ptr<OrderSlot>>;  // by the launch's number
  using Failed = std::pair<size_t, absl::Status>;              // and why

  // Returns the others.
  std::vector<size_t> RunThoseWithRoom(const std::vector<size_t>& numbers) {
    const Orders orders = LockOrders(launches_, numbers);
    Slots slots;
    std::vector<size_t> ready, left, open;
    for (const std::vector<size_t>& same : ByStream(numbers)) {
      const bool has_room = TakeSlots(same, &slots);
      auto& into = has_room ? ready : left;
      into.insert(into.end(), same.begin(), same.end());
    }
    std::ranges::sort(ready);
    std::ranges::sort(left);
    open.reserve(ready.size());
    std::exception_ptr stopped;
    for (const size_t i : ready) {
      const auto slot = slots.find(i);
      if (slot == slots.end()) continue;  // its error is noted
      try {
        auto one = Begin(process_, launches_[i], std::move(slot->second), /*may_block=*/false);
        note_(launches_[i], one.status());
        if (!one.ok()) continue;
        // At once, with an error, where no thread can be started: nobody waits for it on a stream.
        if (one->op != nullptr && one->op->is_finished()) note_(launches_[i], one->op->result());
        begun_[i] = *std::move(one);
        open.push_back(i);
      } catch (const std::bad_alloc&) {
        stopped = std::current_exception();
        break;
      }
    }
    for (const size_t i : open) {
      const auto end = [&] { return EnqueueEnd(process_, launches_[i], *begun_[i]); };
      note_(launches_[i], CatchAll(end));
    }
    if (stopped != nullptr) std::rethrow_exception(stopped);
    return left;
  }

  // The legacy default stream and all others may wait for each other.
  std::vector<std::vector<size_t>> ByStream(const std::vector<size_t>& numbers) const {
    const auto is_legacy = [this](size_t i) {
      const std::optional<GpuCall>& gpu = launches_[i].gpu;
      return gpu && (gpu->stream == nullptr || gpu->stream == cuda::kStreamLegacy);
    };
    const bool are_one = std::ranges::any_of(numbers, is_legacy);
    std::map<cuda::Stream, std::vector<size_t>> of_stream;
    std::vector<std::vector<size_t>> all;
    for (const size_t i : numbers) {
      const std::optional<GpuCall>& gpu = launches_[i].gpu;
      if (!gpu) {
        all.push_back({i});
      } else {
        of_stream[are_one ? nullptr : gpu->stream].push_back(i);
      }
    }
    for (auto& [stream, same] : of_stream) all.push_back(std::move(same));
    return all;
  }

  // For all of them, or none: false. Of launches that fail no slot is there, of those on host
  // memory none that is one.
  bool TakeSlots(const std::vector<size_t>& numbers, Slots* slots) {
    Slots taken;
    std::vector<Failed> failed;
    const std::vector<size_t> without =
        TakeWhatThereIs(numbers, StreamOrder::Room::kUsual, &taken, &failed);
    if (!without.empty() &&
        (taken.empty() ||
         !TakeWhatThereIs(without, StreamOrder::Room::kOneMore, &taken, &failed).empty())) {
      return false;
    }
    slots->merge(taken);
    for (const auto& [i, status] : failed) note_(launches_[i], status);
    return true;
  }

  // Returns those for which there is none.
  std::vector<size_t> TakeWhatThereIs(const std::vector<size_t>& numbers, StreamOrder::Room room,
                                      Slots* taken, std::vector<Failed>* failed) {
    std::vector<size_t> without;
    for (const size_t i : numbers) {
      auto slot = TakeSlot(process_, launches_[i], room);
      if (!slot.ok()) {
        failed->emplace_back(i, slot.status());
      } else if (*slot == nullptr && launches_[i].gpu) {
        without.push_back(i);
      } else {
        taken->emplace(i, *std::move(slot));
      }
    }
    return without;
  }

  Process& process_;
  const std::vector<Launch>& launches_;
  const Note note_;
  std::vector<std::optional<Begun>>& begun_;
};

absl::Status ResultOnNullStream(Operation& op) {
  op.comm().null_stream()->Wait(op);
  return op.result();
}

absl::Status LaunchAll(Process& process, const std::vector<Launch>& launches) {
  absl::Status first_error;
  const auto note = [&](const Launch& launch, const absl::Status& status) {
    if (status.ok()) return;
    launch.comm->SetLastError(status.message());
    // That another rank has failed is a consequence, where that rank is of this group.
    const bool is_cause = absl::IsAborted(first_error) && !absl::IsAborted(status);
    if (first_error.ok() || is_cause) first_error = status;
  };
  std::vector<std::optional<Begun>> begun(launches.size());
  const absl::Status all = CatchAll([&] {
    for (const std::vector<size_t>& numbers : RoundsOf(launches)) {
      Round(process, launches, note, &begun).Run(numbers);
    }
    return absl::OkStatus();
  });
  if (!all.ok()) {
    if (first_error.ok() || absl::IsAborted(first_error)) first_error = all;
    // The rest will not come: what has begun, here and elsewhere, must not wait for it.
    const bool is_any = std::ranges::any_of(begun, [](const auto& one) { return one.has_value(); });
    for (size_t i = 0; i < launches.size() && is_any; ++i) {
      if (!begun[i]) launches[i].comm->Break(all);
    }
  }
  for (size_t i = 0; i < launches.size(); ++i) {
    if (begun[i] && launches[i].waits()) note(launches[i], ResultOnNullStream(*begun[i]->op));
  }
  return first_error;
}

}  // namespace

absl::Status LaunchNow(Process& process, const Launch& launch) {
  const bool waits = launch.waits();
  std::unique_ptr<OrderSlot> slot;
  std::unique_lock<std::mutex> order;
  while (launch.gpu && slot == nullptr) {
    Rings& rings = launch.comm->session()->rings();
    const uint32_t seen = rings.Seen();
    order = std::unique_lock(launch.comm->gpu_order());
    SPCCL_ASSIGN_OR_RETURN(slot, TakeSlot(process, launch));
    if (slot != nullptr) break;
    // As on a full stream. Without the order, which a thread may want that calls for other ranks,
    // too.
    order.unlock();
    rings.WaitForProgress(seen);
  }
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

absl::Status Group::End(Process& process) {
  if (depth_ == 0) {
    return absl::FailedPreconditionError("spcclGroupEnd without spcclGroupStart");
  }
  if (--depth_ > 0) return absl::OkStatus();
  // Whatever comes of it, the next group is a new one.
  absl::Status status = std::exchange(first_error_, absl::OkStatus());
  const std::vector<JoinRequest> joins = std::exchange(joins_, {});
  const std::vector<Launch> launches = std::exchange(launches_, {});
  if (status.ok() && process_ != &process) {
    status = absl::FailedPreconditionError("the group was started before fork()");
  }
  if (status.ok() && !joins.empty()) status = Join(process, joins);
  if (status.ok()) status = LaunchAll(process, launches);
  return status;
}

}  // namespace spccl::client
