#include "tests/support/fake_nccl/fake_world.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace spccl {
namespace {

// What this thread has between GroupStart and GroupEnd.
struct OpenGroup {
  int depth = 0;
  std::vector<std::shared_ptr<FakeKernel>> kernels;  // one a communicator
};
thread_local OpenGroup open_group;

nccl::Comm HandleOf(FakeComm* comm) {
  return reinterpret_cast<nccl::Comm>(comm);
}

}  // namespace

FakeState& FakeState::Get() {
  static auto* const state = new FakeState;  // its thread, and streams', may outlive main()
  return *state;
}

// Kernels, links and communicators hold their world, and it them.
void FakeState::ForgetWorlds() {
  for (const auto& [id, world] : worlds_) {
    for (const auto& link : world->links) links_.Close(link.get());
    world->links.clear();
    world->waiting.clear();
    world->kernels.clear();
    world->comms.clear();
  }
  worlds_.clear();
}

void FakeState::Reset(const Options& options) {
  const Lock lock(mutex_);
  options_ = options;
  random_.seed(options.seed);
  hold_init_ = false;
  failing_.clear();
  stalled_.clear();
  told_.clear();
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

bool FakeState::AwaitTold(int rank) {
  Lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::minutes{1}, [&] { return told_.contains(rank); });
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

void FakeState::Violation(const std::string& what, FakeWorld* world, FakeLink* from) {
  violations_.push_back(what);
  std::fprintf(stderr, "fake NCCL: violation: %s\n", what.c_str());
  const char* const mode = std::getenv("SPCCL_FAKE_NCCL_VIOLATION");
  if (mode != nullptr && std::string_view(mode) == "abort") std::abort();
  if (world != nullptr) Fail(world, nccl::kInternalError, what, from);
}

void FakeState::Fail(FakeWorld* world, nccl::Result error, const std::string& why, FakeLink* from) {
  if (world->error != nccl::kSuccess) return;
  world->error = error;
  world->why = why;
  FakeMessage message{.kind = FakeMessage::Kind::kFail, .number = static_cast<uint64_t>(error)};
  Tell(*world, message, why, from);
  changed_.notify_all();
}

std::shared_ptr<FakeComm> FakeState::Find(nccl::Comm comm, const char* what) {
  const auto found = comms_.find(reinterpret_cast<FakeComm*>(comm));
  if (found == comms_.end()) {
    Violation(std::string(what) + " of no communicator, or one that is gone");
    return nullptr;
  }
  if (found->second->thread != std::this_thread::get_id()) {
    Violation(std::string(what) + " of " + Name(*found->second) + " by a second thread",
              found->second->world.get());
    return nullptr;
  }
  return found->second;
}

nccl::Result FakeState::MakeId(nccl::UniqueId* id) {
  const Lock lock(mutex_);
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "%s %d", links_.Listen().c_str(), ++ids_);
  return nccl::kSuccess;
}

nccl::Result FakeState::Init(nccl::Comm* out, int ranks, const nccl::UniqueId& id, int rank,
                             const nccl::Config* config) {
  const Lock lock(mutex_);
  if (config == nullptr || config->magic != nccl::kConfigMagic || config->blocking != 0) {
    Violation("a communicator that would block, or a configuration that is none");
    return nccl::kInvalidArgument;
  }
  auto comm = std::make_shared<FakeComm>();
  comm->world = WorldOf(std::string(id.internal, sizeof id.internal));
  comm->rank = rank;
  comm->thread = std::this_thread::get_id();
  comm->asks = static_cast<int>(random_() % 4);
  if (!Join(ranks, comm)) return nccl::kInvalidArgument;
  Tell(*comm->world,
       {.kind = FakeMessage::Kind::kJoin, .rank = rank, .number = static_cast<uint64_t>(ranks)});
  comms_[comm.get()] = comm;
  *out = HandleOf(comm.get());
  return nccl::kInProgress;
}

// Of whatever process.
bool FakeState::Join(int ranks, const std::shared_ptr<FakeComm>& comm) {
  FakeWorld& world = *comm->world;
  if (world.ranks == 0) {
    world.ranks = ranks;
    world.comms.resize(static_cast<size_t>(ranks));
  }
  const int rank = comm->rank;
  if (world.ranks != ranks || rank < 0 || rank >= ranks || world.comms[rank] != nullptr) {
    Violation("rank " + std::to_string(rank) + " joins a world that has no place for it", &world);
    return false;
  }
  world.comms[rank] = comm;
  ++world.joined;
  return true;
}

nccl::Result FakeState::Ask(nccl::Comm handle, nccl::Result* error) {
  const Lock lock(mutex_);
  const auto comm = Find(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) return nccl::kInvalidArgument;
  if (comm->error == nccl::kSuccess && failing_.contains(comm->rank)) {
    comm->error = failing_[comm->rank];
  }
  if (comm->error == nccl::kSuccess) comm->error = comm->world->error;
  *error = comm->error;
  if (comm->error != nccl::kSuccess) {
    told_.insert(comm->rank);
    changed_.notify_all();
    return nccl::kSuccess;
  }
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
    Violation("ncclCommFinalize of " + Name(*comm) + " while it is not idle", comm->world.get());
    return nccl::kInvalidUsage;
  }
  comm->state = FakeComm::State::kFinalizing;
  comm->asks = static_cast<int>(random_() % 4);
  ++comm->world->finalized;
  Tell(*comm->world, {.kind = FakeMessage::Kind::kFinalize, .rank = comm->rank});
  return nccl::kInProgress;
}

nccl::Result FakeState::Destroy(nccl::Comm handle) {
  const Lock lock(mutex_);
  const auto comm = Find(handle, "ncclCommDestroy");
  if (comm == nullptr) return nccl::kInvalidArgument;
  if (comm->state != FakeComm::State::kFinalized) {
    Violation("ncclCommDestroy of " + Name(*comm) + ", which is not finalized", comm->world.get());
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
  FakeWorld& world = *comm->world;
  world.comms[comm->rank] = nullptr;
  comms_.erase(comm.get());
  Tell(world, {.kind = FakeMessage::Kind::kLeave, .rank = comm->rank});
  const bool is_used = std::any_of(world.comms.begin(), world.comms.end(), [](const auto& other) {
    return other != nullptr && other->link == nullptr;
  });
  if (is_used || world.links.empty() || !world.links.front()->dialed) return;
  links_.Close(world.links.front().get());
  world.links.clear();
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
  FakeWorld& world = *comm->world;
  if (open_group.depth == 0) {
    Violation(Name(*comm) + " sends or receives outside of a group", &world);
  }
  if (comm->state != FakeComm::State::kIdle) {
    Violation(Name(*comm) + " sends or receives while something is under way", &world);
    return nccl::kInvalidUsage;
  }
  if (data == nullptr || type != nccl::kUint8 || peer < 0 || peer >= world.ranks ||
      peer == comm->rank) {
    Violation(Name(*comm) + " sends or receives nothing, or with nobody", &world);
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
  FakeKernel& kernel = **found;
  if (kernel.stream != stream) Violation(Name(*comm) + " uses two streams in one group", &world);
  AddOp(&kernel, {sends, peer, bytes}, data);
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

}  // namespace spccl
