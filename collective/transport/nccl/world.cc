#include "collective/transport/nccl/world.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/transport/nccl/world_state.h"

namespace spccl::transport::nccl {
namespace {

class NcclTransport final : public OperationTransport {
 public:
  NcclTransport(std::shared_ptr<WorldState> world, WorldState::OperationPtr operation)
      : world_(std::move(world)), operation_(std::move(operation)) {}
  ~NcclTransport() override { Stop(); }

  void Start(Sink* sink) override { world_->Start(operation_, sink); }
  absl::Status Send(const Tag& tag, Frame frame) override {
    return world_->Send(operation_, tag, std::move(frame));
  }
  bool HasRoom(uint32_t to) override { return world_->HasRoom(operation_, to); }
  void Stop() override { world_->Stop(operation_); }
  absl::Status AnnounceAhead(std::span<const FrameSize> sizes) override {
    return world_->AnnounceAhead(operation_, sizes);
  }

 private:
  const std::shared_ptr<WorldState> world_;
  const WorldState::OperationPtr operation_;
};

absl::Status Check(const WorldOptions& options) {
  SPCCL_CHECK(options.library != nullptr && options.control != nullptr);
  std::set<uint32_t> here;
  for (const WorldOptions::Local& local : options.locals) {
    SPCCL_CHECK(local.issuer != nullptr && local.frames != nullptr);
    if (local.rank >= options.node_of_rank.size() || !here.insert(local.rank).second ||
        options.node_of_rank[local.rank] != options.node) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", local.rank, " of a GPU world is not this node's, or is here twice"));
    }
  }
  size_t expected = 0;
  bool rooted = false;
  for (const uint32_t node : options.node_of_rank) {
    expected += node == options.node ? 1 : 0;
    rooted = rooted || node == options.root;
  }
  if (here.empty() || here.size() != expected || !rooted) {
    return absl::InvalidArgumentError(
        "a GPU world needs all ranks of this node, and a root that has a rank");
  }
  return absl::OkStatus();
}

}  // namespace

void CopyHead(const Frame& frame, std::array<std::byte, kHeadBytes>* head) {
  if (frame.gpu() < 0 || frame.size_bytes() < kHeadBytes) return;
  std::memcpy(head->data(), frame.header(), kHeadBytes);
}

void SetHead(const std::array<std::byte, kHeadBytes>& head, Frame* frame) {
  if (frame->gpu() < 0 || frame->size_bytes() < kHeadBytes) return;
  std::memcpy(frame->header(), head.data(), kHeadBytes);
}

Communicator::~Communicator() {
  world_->CloseCommunicator(key_);
}

absl::StatusOr<std::unique_ptr<OperationTransport>> Communicator::OpenOperation(
    const OperationOptions& options) {
  SPCCL_CHECK(options.largest_frame_bytes <= FramePool::kLargestFrame);
  SPCCL_ASSIGN_OR_RETURN(auto operation, world_->Open(key_, options));
  return std::make_unique<NcclTransport>(world_, std::move(operation));
}

absl::StatusOr<std::unique_ptr<World>> World::Create(WorldOptions options) {
  SPCCL_RETURN_IF_ERROR(Check(options));
  auto state = std::make_shared<WorldState>(std::move(options));
  state->Begin();
  return std::unique_ptr<World>(new World(std::move(state)));
}

bool World::Close() {
  return state_->End();
}

void World::Want() {
  WorldState::Lock lock(state_->mutex);
  state_->WantLocked();
  state_->Leave(&lock);
}

void World::Abort(const absl::Status& reason) {
  WorldState::Lock lock(state_->mutex);
  state_->Fail(&lock, state_->RankOf(state_->options.node), reason, std::nullopt);
}

absl::StatusOr<std::unique_ptr<Communicator>> World::OpenCommunicator(
    const Key128& key, std::vector<uint32_t> world_rank_of) {
  SPCCL_RETURN_IF_ERROR(state_->OpenCommunicator(key, std::move(world_rank_of)));
  return std::unique_ptr<Communicator>(new Communicator(state_, key));
}

void World::OnControl(uint32_t node, std::string_view bytes) {
  state_->OnMessage(node, bytes);
}

void World::OnNodeDown(uint32_t node, const absl::Status& reason) {
  WorldState::Lock lock(state_->mutex);
  if (!state_->nodes.contains(node) || node == state_->options.node) return;
  state_->Fail(&lock, state_->RankOf(node), reason, std::nullopt);
}

bool World::up() const {
  const WorldState::Lock lock(state_->mutex);
  if (state_->failure.has_value()) return false;
  for (const auto& slot : state_->slots) {
    if (!slot->up) return false;
  }
  return true;
}

absl::Status World::status() const {
  const WorldState::Lock lock(state_->mutex);
  return state_->failure.has_value() ? state_->AsLossLocked() : absl::OkStatus();
}

}  // namespace spccl::transport::nccl
