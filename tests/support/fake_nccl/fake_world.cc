#include "tests/support/fake_nccl/fake_world.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace spccl {
namespace {

// What this thread has between GroupStart and GroupEnd.
struct OpenGroup {
  int depth = 0;
  std::vector<std::shared_ptr<FakeKernel>> kernels;  // one a communicator
};
thread_local OpenGroup open_group;

std::string Name(const FakeComm& comm) {
  return "rank " + std::to_string(comm.rank);
}

nccl::Comm HandleOf(FakeComm* comm) {
  return reinterpret_cast<nccl::Comm>(comm);
}

}  // namespace

FakeState& FakeState::Get() {
  static FakeState state;
  return state;
}

FakeState::~FakeState() {
  ForgetWorlds();
}

// Kernels and their world hold each other.
void FakeState::ForgetWorlds() {
  for (const auto& [id, world] : worlds_) world->kernels.clear();
  worlds_.clear();
}

void FakeState::Reset(const Options& options) {
  const Lock lock(mutex_);
  options_ = options;
  random_.seed(options.seed);
  hold_init_ = false;
  failing_.clear();
  stalled_.clear();
  corrupt_at_.reset();
  violations_.clear();
  if (!comms_.empty()) Violation("communicators are left from before");
  comms_.clear();
  ForgetWorlds();
  groups_ = sends_ = most_sends_ = 0;
}

void FakeState::HoldInit(bool hold) {
  const Lock lock(mutex_);
  hold_init_ = hold;
}

void FakeState::FailRank(int rank, nccl::Result error) {
  const Lock lock(mutex_);
  failing_[rank] = error;
}

void FakeState::StallRank(int rank) {
  const Lock lock(mutex_);
  stalled_.insert(rank);
}

void FakeState::CorruptByte(size_t at) {
  const Lock lock(mutex_);
  corrupt_at_ = at;
}

std::vector<std::string> FakeState::violations() {
  const Lock lock(mutex_);
  return violations_;
}
size_t FakeState::live_communicators() {
  const Lock lock(mutex_);
  return comms_.size();
}
uint64_t FakeState::groups() {
  const Lock lock(mutex_);
  return groups_;
}
uint64_t FakeState::sends() {
  const Lock lock(mutex_);
  return sends_;
}
uint64_t FakeState::most_sends_a_group() {
  const Lock lock(mutex_);
  return most_sends_;
}
int FakeState::version() {
  const Lock lock(mutex_);
  return options_.version;
}

void FakeState::Violation(const std::string& what) {
  violations_.push_back(what);
}

std::shared_ptr<FakeComm> FakeState::Find(nccl::Comm comm, const char* what) {
  const auto found = comms_.find(reinterpret_cast<FakeComm*>(comm));
  if (found == comms_.end()) {
    Violation(std::string(what) + " of no communicator, or one that is gone");
    return nullptr;
  }
  if (found->second->thread != std::this_thread::get_id()) {
    Violation(std::string(what) + " of " + Name(*found->second) + " by a second thread");
    return nullptr;
  }
  return found->second;
}

nccl::Result FakeState::Init(nccl::Comm* out, int ranks, const nccl::UniqueId& id, int rank,
                             const nccl::Config* config) {
  const Lock lock(mutex_);
  if (config == nullptr || config->magic != nccl::kConfigMagic || config->blocking != 0) {
    Violation("a communicator that would block, or a configuration that is none");
    return nccl::kInvalidArgument;
  }
  std::shared_ptr<FakeWorld>& world = worlds_[std::string(id.internal, sizeof id.internal)];
  if (world == nullptr) {
    world = std::make_shared<FakeWorld>();
    world->ranks = ranks;
    world->comms.resize(static_cast<size_t>(ranks));
  }
  if (world->ranks != ranks || rank < 0 || rank >= ranks || world->comms[rank] != nullptr) {
    Violation("rank " + std::to_string(rank) + " joins a world that has no place for it");
    return nccl::kInvalidArgument;
  }
  auto comm = std::make_shared<FakeComm>();
  comm->world = world;
  comm->rank = rank;
  comm->thread = std::this_thread::get_id();
  comm->asks = static_cast<int>(random_() % 4);
  world->comms[rank] = comm;
  ++world->joined;
  comms_[comm.get()] = comm;
  *out = HandleOf(comm.get());
  return nccl::kInProgress;
}

nccl::Result FakeState::Ask(nccl::Comm handle, nccl::Result* error) {
  const Lock lock(mutex_);
  const auto comm = Find(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) return nccl::kInvalidArgument;
  if (comm->error == nccl::kSuccess && failing_.contains(comm->rank)) {
    comm->error = failing_[comm->rank];
  }
  *error = comm->error;
  if (comm->error != nccl::kSuccess) return nccl::kSuccess;
  bool through = comm->asks <= 0;
  if (comm->state == FakeComm::State::kInit) {
    through = through && comm->world->joined == comm->world->ranks && !hold_init_;
  } else if (comm->state == FakeComm::State::kFinalizing) {
    through = through && comm->unfinished == 0 && comm->world->finalized == comm->world->ranks;
  }
  if (comm->state == FakeComm::State::kIdle || comm->state == FakeComm::State::kFinalized) {
    return nccl::kSuccess;
  }
  if (!through) {
    --comm->asks;
    *error = nccl::kInProgress;
    return nccl::kSuccess;
  }
  if (comm->state == FakeComm::State::kFinalizing) {
    comm->state = FakeComm::State::kFinalized;
    return nccl::kSuccess;
  }
  const bool launches = comm->state == FakeComm::State::kLaunching;
  comm->state = FakeComm::State::kIdle;
  if (launches) *error = Launch(std::exchange(comm->launching, nullptr));
  return nccl::kSuccess;
}

nccl::Result FakeState::Finalize(nccl::Comm handle) {
  const Lock lock(mutex_);
  const auto comm = Find(handle, "ncclCommFinalize");
  if (comm == nullptr) return nccl::kInvalidArgument;
  if (comm->state != FakeComm::State::kIdle) {
    Violation("ncclCommFinalize of " + Name(*comm) + " while it is not idle");
    return nccl::kInvalidUsage;
  }
  comm->state = FakeComm::State::kFinalizing;
  comm->asks = static_cast<int>(random_() % 4);
  ++comm->world->finalized;
  return nccl::kInProgress;
}

nccl::Result FakeState::Destroy(nccl::Comm handle) {
  const Lock lock(mutex_);
  const auto comm = Find(handle, "ncclCommDestroy");
  if (comm == nullptr) return nccl::kInvalidArgument;
  if (comm->state != FakeComm::State::kFinalized) {
    Violation("ncclCommDestroy of " + Name(*comm) + ", which is not finalized");
  }
  Forget(comm);
  return nccl::kSuccess;
}

nccl::Result FakeState::Abort(nccl::Comm handle) {
  const Lock lock(mutex_);
  const auto comm = Find(handle, "ncclCommAbort");
  if (comm == nullptr) return nccl::kInvalidArgument;
  comm->aborted = true;
  Forget(comm);
  changed_.notify_all();
  return nccl::kSuccess;
}

void FakeState::Forget(const std::shared_ptr<FakeComm>& comm) {
  comm->launching = nullptr;  // it holds the communicator
  comm->world->comms[comm->rank] = nullptr;
  comms_.erase(comm.get());
}

nccl::Result FakeState::GroupStart() {
  ++open_group.depth;
  return nccl::kSuccess;
}

nccl::Result FakeState::Add(bool sends, std::byte* data, size_t bytes, int type, int peer,
                            nccl::Comm handle, cuda::Stream stream) {
  const Lock lock(mutex_);
  const auto comm = Find(handle, sends ? "ncclSend" : "ncclRecv");
  if (comm == nullptr) return nccl::kInvalidArgument;
  if (open_group.depth == 0) Violation(Name(*comm) + " sends or receives outside of a group");
  if (comm->state != FakeComm::State::kIdle) {
    Violation(Name(*comm) + " sends or receives while something is under way");
    return nccl::kInvalidUsage;
  }
  if (data == nullptr || type != nccl::kUint8 || peer < 0 || peer >= comm->world->ranks ||
      peer == comm->rank) {
    Violation(Name(*comm) + " sends or receives nothing, or with nobody");
    return nccl::kInvalidArgument;
  }
  auto& kernels = open_group.kernels;
  auto found = std::find_if(kernels.begin(), kernels.end(),
                            [&](const auto& kernel) { return kernel->comm == comm; });
  if (found == kernels.end()) {
    auto kernel = std::make_shared<FakeKernel>();
    kernel->comm = comm;
    kernel->stream = stream;
    found = kernels.insert(kernels.end(), std::move(kernel));
  }
  if ((*found)->stream != stream) Violation(Name(*comm) + " uses two streams in one group");
  auto op = std::make_unique<FakeOp>();
  *op = {.sends = sends, .data = data, .bytes = bytes, .peer = peer, .kernel = found->get()};
  (*found)->ops.push_back(std::move(op));
  return nccl::kSuccess;
}

nccl::Result FakeState::GroupEnd() {
  const Lock lock(mutex_);
  if (open_group.depth == 0) {
    Violation("ncclGroupEnd without ncclGroupStart");
    return nccl::kInvalidUsage;
  }
  if (--open_group.depth > 0) return nccl::kSuccess;
  nccl::Result result = nccl::kSuccess;
  for (const auto& kernel : std::exchange(open_group.kernels, {})) {
    if (random_() % 2 == 0) {
      result = std::max(result, Launch(kernel));
    } else {
      kernel->comm->state = FakeComm::State::kLaunching;
      kernel->comm->asks = static_cast<int>(random_() % 4);
      kernel->comm->launching = kernel;
      result = nccl::kInProgress;
    }
  }
  return result;
}

nccl::Result FakeState::Launch(const std::shared_ptr<FakeKernel>& kernel) {
  FakeComm& comm = *kernel->comm;
  FakeWorld& world = *comm.world;
  kernel->number = ++comm.kernels;
  ++comm.unfinished;
  ++groups_;
  world.kernels.push_back(kernel);
  uint64_t sends = 0;
  for (const auto& op : kernel->ops) {
    sends += op->sends ? 1 : 0;
    const std::pair<int, int> way =
        op->sends ? std::pair{comm.rank, op->peer} : std::pair{op->peer, comm.rank};
    auto& own = op->sends ? world.sends[way] : world.receives[way];
    auto& other = op->sends ? world.receives[way] : world.sends[way];
    if (other.empty()) {
      own.push_back(op.get());
      continue;
    }
    FakeOp* const mate = other.front();
    other.pop_front();
    op->sends ? Match(op.get(), mate) : Match(mate, op.get());
  }
  sends_ += sends;
  most_sends_ = std::max(most_sends_, sends);
  LookForDeadlock(&world);
  options_.enqueue(
      kernel->stream,
      [](void* argument) {
        const std::unique_ptr<std::shared_ptr<FakeKernel>> own(
            static_cast<std::shared_ptr<FakeKernel>*>(argument));
        FakeState::Get().Run(own->get());
      },
      new std::shared_ptr<FakeKernel>(kernel));
  return nccl::kSuccess;
}

void FakeState::Match(FakeOp* send, FakeOp* receive) {
  send->mate = receive;
  receive->mate = send;
  if (send->bytes == receive->bytes) return;
  Break(send->kernel->comm->world.get(),
        Name(*send->kernel->comm) + " sends " + std::to_string(send->bytes) + " bytes to " +
            Name(*receive->kernel->comm) + ", which receives " + std::to_string(receive->bytes));
}

void FakeState::Break(FakeWorld* world, const std::string& why) {
  Violation(why);
  world->broken = true;
  for (const auto& comm : world->comms) {
    if (comm != nullptr) comm->error = nccl::kInternalError;
  }
  changed_.notify_all();
}

// A rank whose running group waits for something that another has launched behind its running group
// waits for that rank. A circle of such waits never ends.
void FakeState::LookForDeadlock(FakeWorld* world) {
  std::map<int, std::set<int>> waits;
  for (const auto& kernel : world->kernels) {
    if (!kernel->running || kernel->over) continue;
    for (const auto& op : kernel->ops) {
      if (op->done || op->mate == nullptr || op->mate->kernel->running) continue;
      waits[kernel->comm->rank].insert(op->peer);
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
    if (world->broken || !reaches(start)) continue;
    Break(world, "deadlock: rank " + std::to_string(start) +
                     " waits for a group that waits for its own: the orders of groups differ");
  }
}

std::byte* FakeState::FindMemory(std::byte* memory) const {
  return options_.find == nullptr ? memory : static_cast<std::byte*>(options_.find(memory));
}

void FakeState::Run(FakeKernel* kernel) {
  Lock lock(mutex_);
  FakeComm& comm = *kernel->comm;
  FakeWorld& world = *comm.world;
  kernel->running = true;
  changed_.notify_all();
  LookForDeadlock(&world);
  const auto move = [&] {
    if (comm.aborted || world.broken) return true;
    if (Stalled(comm)) return false;
    bool all = true;
    for (const auto& op : kernel->ops) {
      if (!op->done && op->mate != nullptr && op->mate->kernel->running &&
          !Stalled(*op->mate->kernel->comm) && !op->mate->kernel->comm->aborted) {
        FakeOp* const send = op->sends ? op.get() : op->mate;
        std::byte* const to = FindMemory(send->mate->data);
        std::memcpy(to, FindMemory(send->data), send->bytes);
        if (corrupt_at_.has_value() && *corrupt_at_ < send->bytes) {
          to[*corrupt_at_] ^= std::byte{1};
        }
        send->done = send->mate->done = true;
        changed_.notify_all();
      }
      all = all && op->done;
    }
    return all;
  };
  changed_.wait(lock, move);
  kernel->over = true;
  --comm.unfinished;
  LookForDeadlock(&world);
}

}  // namespace spccl
