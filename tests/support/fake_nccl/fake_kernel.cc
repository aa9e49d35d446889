// How groups run: the matching of their calls, and the moving of bytes.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_nccl/fake_world.h"

namespace spccl {
namespace {

// The fake CUDA that the process has loaded.
struct OfFakeCuda {
  decltype(&spcclFakeLaunch) launch;
  decltype(&spcclFakeHere) here;
};
const OfFakeCuda& TheFakeCuda() {
  static const OfFakeCuda fake = [] {
    void* const library = ::dlopen("libspccl_fake_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    SPCCL_CHECK(library != nullptr);
    return OfFakeCuda{
        reinterpret_cast<decltype(&spcclFakeLaunch)>(::dlsym(library, "spcclFakeLaunch")),
        reinterpret_cast<decltype(&spcclFakeHere)>(::dlsym(library, "spcclFakeHere"))};
  }();
  return fake;
}

}  // namespace

void AddOp(FakeKernel* kernel, const FakeCall& call, std::byte* data) {
  auto op = std::make_unique<FakeOp>();
  op->call = call;
  op->data = data;
  op->kernel = kernel;
  op->index = static_cast<int>(kernel->ops.size());
  kernel->ops.push_back(std::move(op));
}

nccl::Result FakeState::Launch(const std::shared_ptr<FakeKernel>& kernel) {
  FakeComm& comm = *kernel->comm;
  kernel->number = ++comm.kernels;
  ++comm.unfinished;
  ++groups_;
  uint64_t sends = 0;
  std::vector<FakeCall> calls;
  for (const auto& op : kernel->ops) {
    sends += op->call.sends ? 1 : 0;
    calls.push_back(op->call);
  }
  sends_ += sends;
  most_sends_ = std::max(most_sends_, sends);
  Tell(*comm.world,
       {.kind = FakeMessage::Kind::kLaunch, .rank = comm.rank, .number = kernel->number},
       {reinterpret_cast<const char*>(calls.data()), calls.size() * sizeof(FakeCall)});
  Place(kernel);
  return Enqueue(kernel);
}

nccl::Result FakeState::Enqueue(const std::shared_ptr<FakeKernel>& kernel) {
  using Own = std::shared_ptr<FakeKernel>;
  const auto run = [](void* argument) { Get().Run(static_cast<Own*>(argument)->get()); };
  const auto drop = [](void* argument) { delete static_cast<Own*>(argument); };
  auto* const own = new Own(kernel);
  if (options_.enqueue == nullptr) {
    const bool launched = TheFakeCuda().launch(kernel->stream, run, own, drop) == cuda::kSuccess;
    return launched ? nccl::kSuccess : nccl::kUnhandledCudaError;
  }
  options_.enqueue(
      kernel->stream,
      [](void* argument) {
        const std::unique_ptr<Own> once(static_cast<Own*>(argument));
        Get().Run(once->get());
      },
      own);
  return nccl::kSuccess;
}

// Of whatever process: sends and receives find each other.
void FakeState::Place(const std::shared_ptr<FakeKernel>& kernel) {
  const int rank = kernel->comm->rank;
  FakeWorld& world = *kernel->comm->world;
  world.kernels[{rank, kernel->number}] = kernel;
  for (const auto& op : kernel->ops) {
    const auto& [sends, peer, bytes] = op->call;
    const std::pair<int, int> way = sends ? std::pair{rank, peer} : std::pair{peer, rank};
    auto& own = sends ? world.sends[way] : world.receives[way];
    auto& other = sends ? world.receives[way] : world.sends[way];
    if (other.empty()) {
      own.push_back(op.get());
      continue;
    }
    FakeOp* const mate = other.front();
    other.pop_front();
    sends ? Match(op.get(), mate) : Match(mate, op.get());
  }
  LookForDeadlock(&world);
}

void FakeState::Match(FakeOp* send, FakeOp* receive) {
  send->mate = receive;
  receive->mate = send;
  const size_t sent = send->call.bytes, received = receive->call.bytes;
  if (sent == received) return;
  Violation(Name(*send->kernel->comm) + " sends " + std::to_string(sent) + " bytes to " +
                Name(*receive->kernel->comm) + ", which receives " + std::to_string(received),
            send->kernel->comm->world.get());
}

// Of whatever process.
void FakeState::Begin(FakeKernel* kernel) {
  FakeWorld* const world = kernel->comm->world.get();
  kernel->running = true;
  world->waiting.push_back(kernel);
  changed_.notify_all();
  LookForDeadlock(world);
}

// A rank whose running group waits for something that another has launched behind its running group
// waits for that rank. A circle of such waits never ends, so what has been heard late of other
// processes shows no circle that was not there.
void FakeState::LookForDeadlock(FakeWorld* world) {
  std::erase_if(world->waiting, [](const FakeKernel* kernel) {
    return kernel->over || kernel->comm->aborted ||
           std::all_of(kernel->ops.begin(), kernel->ops.end(), [](const auto& op) {
             return op->mate != nullptr && op->mate->kernel->running;
           });
  });
  std::map<int, std::set<int>> waits;
  for (const FakeKernel* kernel : world->waiting) {
    for (const auto& op : kernel->ops) {
      if (op->mate == nullptr || op->mate->kernel->running) continue;
      waits[kernel->comm->rank].insert(op->call.peer);
    }
  }
  for (const auto& [start, unused] : waits) {
    std::set<int> reached;
    const std::function<bool(int)> reaches = [&](int rank) {
      const auto next = waits.find(rank);
      if (next == waits.end()) return false;
      return std::any_of(next->second.begin(), next->second.end(), [&](int peer) {
        return peer == start || (reached.insert(peer).second && reaches(peer));
      });
    };
    if (world->broken() || !reaches(start)) continue;
    Violation("deadlock: rank " + std::to_string(start) +
                  " waits for a group that waits for its own: the orders of groups differ",
              world);
  }
}

std::byte* FakeState::FindMemory(std::byte* memory) const {
  if (options_.enqueue != nullptr) return memory;
  return static_cast<std::byte*>(TheFakeCuda().here(reinterpret_cast<cuda::DevicePtr>(memory)));
}

void FakeState::Run(FakeKernel* kernel) {
  Lock lock(mutex_);
  FakeComm& comm = *kernel->comm;
  Tell(*comm.world, {.kind = FakeMessage::Kind::kRun, .rank = comm.rank, .number = kernel->number});
  Begin(kernel);
  changed_.wait(lock, [&] { return Move(kernel); });
  kernel->over = true;
  --comm.unfinished;
  LookForDeadlock(comm.world.get());
}

// Does what can be done; true when all is done.
bool FakeState::Move(FakeKernel* kernel) {
  const FakeComm& comm = *kernel->comm;
  if (comm.aborted || comm.world->broken()) return true;
  if (Stalled(comm)) return false;
  bool all = true;
  for (const auto& op : kernel->ops) {
    if (op->arrived.has_value()) {
      std::memcpy(FindMemory(op->data), op->arrived->data(), op->arrived->size());
      op->arrived.reset();
      op->done = true;
    } else if (op->call.sends && !op->done && op->mate != nullptr) {
      Send(op.get());
    }
    all = all && op->done;
  }
  return all;
}

// Once who receives is running, too.
void FakeState::Send(FakeOp* op) {
  const FakeKernel& to = *op->mate->kernel;
  if (!to.running || to.comm->aborted || Stalled(*to.comm)) return;
  const std::byte* const data = FindMemory(op->data);
  std::string bytes(reinterpret_cast<const char*>(data), op->call.bytes);
  if (corrupt_at_.has_value() && *corrupt_at_ < bytes.size()) bytes[*corrupt_at_] ^= 1;
  op->done = true;
  OnData(to.comm->world.get(),
         {.kind = FakeMessage::Kind::kData,
          .rank = to.comm->rank,
          .peer = op->mate->index,
          .number = to.number},
         bytes);
}

}  // namespace spccl
