#include "daemon/gpu_worlds.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/runtime/cuda/hardware_queues.h"
#include "collective/runtime/cuda/nccl_environment.h"
#include "collective/transport/nccl/world.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {

namespace nccl = transport::nccl;

namespace {

// Sets of daemons that are remembered; a job's nodes are one.
constexpr size_t kMostSets = 256;
constexpr int kMostBlocks = 12;
// How soon an end that has to wait for ranks is looked at again.
constexpr int64_t kLookAgainNs = 100'000'000;

// 0: the driver does not say.
int MultiprocessorsOf(const cuda::Driver& driver, const runtime::Gpu& gpu) {
  const cuda::ScopedContext current(driver, gpu.context());
  cuda::Device device = 0;
  int count = 0;
  if (!current.status().ok() || driver.CtxGetDevice(&device) != cuda::kSuccess ||
      driver.DeviceGetAttribute(&count, cuda::kDeviceAttributeMultiprocessorCount, device) !=
          cuda::kSuccess) {
    return 0;
  }
  return count;
}

int FewestMultiprocessors(runtime::Gpus& gpus) {
  int fewest = std::numeric_limits<int>::max();
  for (size_t i = 0; i < gpus.count(); ++i) {
    fewest = std::min(fewest, MultiprocessorsOf(*gpus.driver(), gpus.at(i)));
  }
  return fewest;
}

}  // namespace

// NCCL's kernels of all worlds must fit on a GPU together, a block to each multiprocessor, or those
// of one could keep another's from starting there while it is the other way round elsewhere. One
// world alone keeps nobody.
size_t MostGpuWorlds(int multiprocessors) {
  const auto fit = static_cast<size_t>(std::max(0, multiprocessors / kMostBlocks));
  return std::clamp<size_t>(fit, 1, runtime::kRunningWorlds);
}

// One world, and what it is given. Its nodes are numbered by ascending boot id; the first is the
// root.
struct GpuWorld final : nccl::Control {
  struct OfGpu {
    explicit OfGpu(runtime::Gpu& gpu) : issuer(gpu), frames(gpu) {}
    runtime::GpuIssuer issuer;
    runtime::GpuFrames frames;
  };

  void Send(uint32_t node, std::string bytes) override {
    v1::PeerMessage message;
    v1::NcclControl& control = *message.mutable_nccl_control();
    control.set_set(set);
    control.set_generation(generation);
    control.set_body(std::move(bytes));
    send(nodes[node], message);
  }
  std::optional<uint32_t> NumberOf(NodeId node) const {
    const auto found = std::find(nodes.begin(), nodes.end(), node);
    if (found == nodes.end()) return std::nullopt;
    return static_cast<uint32_t>(found - nodes.begin());
  }

  bool IsOver(const GpuWorldPlan& plan) const {
    return plan.nodes.size() == nodes.size() &&
           std::all_of(plan.nodes.begin(), plan.nodes.end(),
                       [&](const auto& node) { return NumberOf(node.id).has_value(); });
  }

  uint64_t set = 0, generation = 0;
  std::function<void(NodeId, const v1::PeerMessage&)> send;
  std::vector<NodeId> nodes;           // by number; 0: this one
  std::vector<uint32_t> node_of_rank;  // of the world's ranks
  std::vector<uint32_t> first_rank;    // of each node
  uint32_t here = 0;
  std::vector<std::unique_ptr<OfGpu>> gpus;
  std::unique_ptr<nccl::World> world;

  // GpuWorlds' lock's.
  bool is_used = false;     // it counts among those that run: since an operation was opened
  bool has_failed = false;  // then it never counts again
  size_t channels = 0;
  int64_t idle_since_ns = 0;
};

class GpuWorlds::Channel final : public GpuChannel {
 public:
  Channel(GpuWorlds* owner, std::shared_ptr<GpuWorld> world)
      : owner_(owner), world_(std::move(world)) {}
  ~Channel() override {
    communicator_.reset();
    owner_->Leave(world_);
  }

  absl::Status Open(const nccl::Key128& key, const std::vector<NodeId>& node_of_rank) {
    std::vector<uint32_t> world_rank_of;
    for (uint32_t rank = 0; rank < node_of_rank.size(); ++rank) {
      const std::optional<uint32_t> node = world_->NumberOf(node_of_rank[rank]);
      SPCCL_CHECK(node.has_value());
      world_rank_of.push_back(world_->first_rank[*node]);
      if (*node == world_->here) local_ranks_.push_back(rank);
    }
    SPCCL_ASSIGN_OR_RETURN(communicator_,
                           world_->world->OpenCommunicator(key, std::move(world_rank_of)));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<transport::Transport>> OpenOperation(
      uint64_t sequence, uint64_t plan, uint64_t largest_frame_bytes,
      std::span<runtime::Gpu* const> rails) override {
    SPCCL_RETURN_IF_ERROR(owner_->NoteUse(*world_));
    nccl::OperationOptions options{
        .sequence = sequence, .plan = plan, .largest_frame_bytes = largest_frame_bytes};
    std::vector<uint32_t> ranks;
    for (runtime::Gpu* const gpu : rails) {
      ranks.push_back(world_->first_rank[world_->here] + static_cast<uint32_t>(gpu->index()));
    }
    for (const uint32_t rank : local_ranks_) options.rails[rank] = ranks;
    return communicator_->OpenOperation(options);
  }

 private:
  GpuWorlds* const owner_;
  const std::shared_ptr<GpuWorld> world_;
  std::vector<uint32_t> local_ranks_;
  std::unique_ptr<nccl::Communicator> communicator_;
};

GpuWorlds::GpuWorlds(Options options)
    : options_(std::move(options)),
      most_used_(MostGpuWorlds(FewestMultiprocessors(*options_.gpus))),
      closer_([this] { Run(); }) {}

GpuWorlds::~GpuWorlds() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  closer_.join();
}

GpuOffer GpuWorlds::Offer() {
  GpuOffer offer;
  // No world with it would come up.
  for (size_t i = 0; i < options_.gpus->count(); ++i) {
    const absl::Status status = options_.gpus->at(i).status();
    if (!status.ok()) offer.why_none = absl::StrCat("GPU ", i, ": ", status.message());
  }
  if (!offer.why_none.empty()) return offer;
  offer.gpus = static_cast<uint32_t>(options_.gpus->count());
  offer.library_version = options_.library->version();
  offer.is_ncclx = options_.library->is_ncclx();
  const std::lock_guard lock(mutex_);
  for (const auto& [set, known] : sets_) {
    offer.generations[set] = known.last_generation + (known.world == nullptr ? 1 : 0);
    if (known.world != nullptr) known.world->idle_since_ns = MonotonicNanos();
  }
  return offer;
}

absl::StatusOr<std::unique_ptr<GpuChannel>> GpuWorlds::OpenChannel(
    const nccl::Key128& key, const GpuWorldPlan& plan, const std::vector<NodeId>& node_of_rank) {
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<GpuWorld> world, WorldOf(plan));
  auto channel = std::make_unique<Channel>(this, std::move(world));
  SPCCL_RETURN_IF_ERROR(channel->Open(key, node_of_rank));
  return channel;
}

absl::StatusOr<std::shared_ptr<GpuWorld>> GpuWorlds::WorldOf(const GpuWorldPlan& plan) {
  std::vector<GpuSeat> seats;
  for (const GpuWorldPlan::Node& node : plan.nodes) {
    seats.push_back({.boot_id = node.boot_id, .gpus = node.gpus});
    if (node.id == 0 && node.gpus != options_.gpus->count()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a world with ", node.gpus, " GPUs of this node, which has ", options_.gpus->count()));
    }
  }
  const uint64_t set = SetOf(std::move(seats));
  const std::lock_guard lock(mutex_);
  ForgetOldLocked();
  Set& known = sets_[set];
  // One over a connection that is gone, and has not failed yet: the daemons have met anew.
  if (known.world != nullptr && !known.world->IsOver(plan)) known.world = nullptr;
  if (known.world == nullptr || known.last_generation != plan.generation) {
    if (plan.generation <= known.last_generation) {
      return absl::AbortedError(
          "NCCL's communicator of these GPUs ended while this one came together; try again");
    }
    SPCCL_ASSIGN_OR_RETURN(known.world, Make(set, plan));
    known.last_generation = plan.generation;
    worlds_.push_back(known.world);
  }
  ++known.world->channels;
  return known.world;
}

absl::StatusOr<std::shared_ptr<GpuWorld>> GpuWorlds::Make(uint64_t set, const GpuWorldPlan& plan) {
  auto world = std::make_shared<GpuWorld>();
  world->set = set;
  world->generation = plan.generation;
  world->send = options_.send;
  std::vector<std::string> names;
  std::vector<GpuWorldPlan::Node> nodes = plan.nodes;
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a.boot_id < b.boot_id; });
  for (uint32_t number = 0; number < nodes.size(); ++number) {
    if (nodes[number].id == 0) world->here = number;
    world->nodes.push_back(nodes[number].id);
    world->first_rank.push_back(static_cast<uint32_t>(world->node_of_rank.size()));
    world->node_of_rank.insert(world->node_of_rank.end(), nodes[number].gpus, number);
    for (uint32_t gpu = 0; gpu < nodes[number].gpus; ++gpu) {
      names.push_back(absl::StrCat("GPU ", gpu, " of ", nodes[number].name));
    }
  }
  nccl::WorldOptions options{.library = options_.library,
                             .node_of_rank = world->node_of_rank,
                             .name_of_rank = std::move(names),
                             .node = world->here,
                             .root = 0,
                             .locals = {},
                             .control = world.get(),
                             .max_ctas = kMostBlocks};
  for (size_t gpu = 0; gpu < options_.gpus->count(); ++gpu) {
    world->gpus.push_back(std::make_unique<GpuWorld::OfGpu>(options_.gpus->at(gpu)));
    options.locals.push_back({.rank = world->first_rank[world->here] + static_cast<uint32_t>(gpu),
                              .issuer = &world->gpus.back()->issuer,
                              .frames = &world->gpus.back()->frames});
  }
  options.on_up = [gpus = world->node_of_rank.size(), nodes = world->nodes.size()] {
    Log(LogLevel::kInfo, "nccl", "GPUs are connected",
        {{"gpus", absl::StrCat(gpus)}, {"nodes", absl::StrCat(nodes)}});
  };
  options.on_failed = [this, raw = world.get()](uint32_t, const absl::Status&) { OnFailed(raw); };
  SPCCL_ASSIGN_OR_RETURN(world->world, nccl::World::Create(std::move(options)));
  return world;
}

std::vector<std::shared_ptr<GpuWorld>> GpuWorlds::All() const {
  const std::lock_guard lock(mutex_);
  return worlds_;
}

void GpuWorlds::OnControl(NodeId node, const v1::NcclControl& message) {
  std::shared_ptr<GpuWorld> world;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(worlds_.begin(), worlds_.end(), [&](const auto& one) {
      return one->set == message.set() && one->generation == message.generation();
    });
    if (found == worlds_.end()) return;
    world = *found;
  }
  // Without the lock: the world sends.
  if (const auto number = world->NumberOf(node)) world->world->OnControl(*number, message.body());
}

void GpuWorlds::OnNodeDown(NodeId node, const absl::Status& reason) {
  for (const std::shared_ptr<GpuWorld>& world : All()) {
    if (const auto number = world->NumberOf(node)) world->world->OnNodeDown(*number, reason);
  }
}

void GpuWorlds::Abort(const absl::Status& reason) {
  for (const std::shared_ptr<GpuWorld>& world : All()) world->world->Abort(reason);
}

void GpuWorlds::OnFailed(const GpuWorld* failed) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [set, known] : sets_) {
      if (known.world.get() == failed) known.world = nullptr;
    }
    for (const auto& world : worlds_) {
      if (world.get() == failed) world->has_failed = true;
    }
  }
  changed_.notify_all();
}

void GpuWorlds::Leave(const std::shared_ptr<GpuWorld>& world) {
  {
    const std::lock_guard lock(mutex_);
    // While nobody is in it, it takes no room from others.
    if (--world->channels == 0) world->is_used = false;
    world->idle_since_ns = MonotonicNanos();
  }
  changed_.notify_all();
}

void GpuWorlds::ForgetOldLocked() {
  if (sets_.size() < kMostSets) return;
  std::erase_if(sets_, [](const auto& entry) { return entry.second.world == nullptr; });
}

absl::Status GpuWorlds::NoteUse(GpuWorld& world) {
  const std::lock_guard lock(mutex_);
  // Of one that has failed the operation tells why.
  if (world.is_used || world.has_failed) return absl::OkStatus();
  const auto used =
      static_cast<size_t>(std::count_if(worlds_.begin(), worlds_.end(), [](const auto& other) {
        return other->is_used && !other->has_failed;
      }));
  if (used >= most_used_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the GPUs of this node are in ", used,
                     " of NCCL's communicators, each over other nodes, the most that run side by "
                     "side: destroy communicators, or set gpu.between_nodes = \"host\""));
  }
  world.is_used = true;
  return absl::OkStatus();
}

bool GpuWorlds::MayFree() const {
  for (size_t i = 0; i < options_.gpus->count(); ++i) {
    if (!options_.gpus->at(i).may_free()) return false;
  }
  return true;
}

void GpuWorlds::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    int64_t wait_ns = options_.keep_ns;
    const int64_t now_ns = MonotonicNanos();
    const auto due = std::find_if(worlds_.begin(), worlds_.end(), [&](const auto& world) {
      if (world->channels > 0) return false;
      const bool is_current = sets_[world->set].world == world;
      const int64_t left_ns = world->idle_since_ns + options_.keep_ns - now_ns;
      const bool is_due = !is_current || left_ns <= 0;
      if (stopping_ || (is_due && MayFree())) return true;
      wait_ns = std::min(wait_ns, is_due ? kLookAgainNs : left_ns);
      return false;
    });
    if (due != worlds_.end()) {
      std::shared_ptr<GpuWorld> world = *due;
      worlds_.erase(due);
      Set& known = sets_[world->set];
      if (known.world == world) known.world = nullptr;
      lock.unlock();
      // What an issuing thread still calls must stay.
      if (!world->world->Close()) new std::shared_ptr<GpuWorld>(world);
      world = nullptr;
      lock.lock();
    } else if (stopping_) {
      SPCCL_CHECK(worlds_.empty());
      return;
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
    }
  }
}

}  // namespace spccl::daemon
