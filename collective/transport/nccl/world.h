// Moves frames between GPUs, over NCCL: one communicator of NCCL's for a set of GPUs, with a rank
// for each, which all communicators over these GPUs and all their operations share.
//
// How it works, and why it does not deadlock: docs/adr/0021-nccl-transport.md. In short, a sender
// announces each frame's size to its receiver, the receiver makes room and says so to the root, and
// the root puts what is ready into groups that all ranks issue in one order.
//
// A world that has failed never works again: NCCL cannot take one rank out. All its operations fail
// on all nodes, naming the rank that was lost, where that is known.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/transport/nccl/environment.h"
#include "collective/transport/nccl/library.h"
#include "collective/transport/nccl/sequencer.h"
#include "collective/transport/nccl/wire.h"
#include "collective/transport/transport.h"

namespace spccl::transport::nccl {

struct WorldState;

struct WorldOptions {
  // One of this node's ranks: a GPU.
  struct Local {
    uint32_t rank = 0;
    Issuer* issuer = nullptr;
    FrameSource* frames = nullptr;
  };

  std::shared_ptr<const Library> library;
  std::vector<uint32_t> node_of_rank;  // of the world's ranks; nodes are numbered by the caller
  std::vector<std::string> name_of_rank = {};  // for people; empty: "GPU rank 3"
  uint32_t node = 0;                           // this one
  uint32_t root = 0;                           // who names the world and orders its groups
  std::vector<Local> locals;                   // all ranks of this node
  Control* control = nullptr;                  // outlives the world

  int64_t init_deadline_ns = 60'000'000'000;  // from when it is wanted
  // From when a group is issued here: all ranks have it then, or will once they are through with
  // what is before it.
  int64_t group_deadline_ns = 120'000'000'000;
  int64_t close_deadline_ns = 5'000'000'000;
  // From when NCCL finds another process gone until somebody has said which node is; then the world
  // fails without a name.
  int64_t naming_deadline_ns = 500'000'000;
  // Of an operation, from one rank to another: what is announced and has not arrived. All nodes'
  // are the same, so that who exceeds it is known to lie.
  uint64_t window_bytes = uint64_t{64} << 20;
  Sequencer::Options groups = {};  // the root's
  int max_ctas = 0;                // of NCCL's kernels; 0: its default

  // Called once each, by an issuing thread or whoever calls into the world. They must only hand
  // over. Failure may come instead of `on_up`, or later; `rank` is the world's, or kNobody.
  std::function<void()> on_up = {};
  std::function<void(uint32_t rank, const absl::Status&)> on_failed = {};
};

struct OperationOptions {
  // Of the communicator: each opened operation has a higher one than those before it, on all nodes
  // the same.
  uint64_t sequence = 0;
  uint64_t plan = 0;  // digest of what all nodes must have alike
  // No frame of the operation is larger; <= FramePool::kLargestFrame.
  uint64_t largest_frame_bytes = 0;
  // The GPUs that frames of this node's ranks lie on, as ranks of the world: lane l of a rank is on
  // rails[l % rails.size()]. Other nodes need not know. Of a rank that is not here, all are on the
  // communicator's.
  std::map<uint32_t, std::vector<uint32_t>> rails = {};
};

// The transport of one operation. Frames lie in the memory of their ranks' GPUs, and what is sent
// is complete there. A frame of size 0 is one.
//
// OnAnnounced comes for every frame, once its bytes are at the sender and its place is here: by the
// issuing thread of its GPU, as OnFrame later.
class OperationTransport : public Transport {
 public:
  bool TakesGpuFrames() const final { return true; }
};

// One communicator over (some of) the world's GPUs. Closes in the destructor; what its operations
// sent still reaches the peers. Its transports are stopped before. Thread-safe.
class Communicator {
 public:
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Fails if the world has. Frames of another node that has called something else are refused,
  // and the operation fails with both digests.
  absl::StatusOr<std::unique_ptr<OperationTransport>> OpenOperation(
      const OperationOptions& options);

 private:
  friend class World;
  Communicator(std::shared_ptr<WorldState> world, const Key128& key)
      : world_(std::move(world)), key_(key) {}
  const std::shared_ptr<WorldState> world_;
  const Key128 key_;
};

// Thread-safe. Communicators and their transports are gone before the world.
class World {
 public:
  // NCCL is begun with the first operation, of any node: who has none pays for no world. At once
  // usable: frames wait until it is up.
  static absl::StatusOr<std::unique_ptr<World>> Create(WorldOptions options);
  void Want();  // NCCL now
  ~World() { Close(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // `world_rank_of`: the GPU of each of the communicator's ranks, which are what tags name, or any
  // of the GPUs of its node where operations say which; several may have the same. Operations may
  // begin when all nodes have opened it.
  absl::StatusOr<std::unique_ptr<Communicator>> OpenCommunicator(
      const Key128& key, std::vector<uint32_t> world_rank_of);

  // What came over the control connection to that node, in order.
  void OnControl(uint32_t node, std::string_view bytes);
  // It is out of reach, for good. The world fails.
  void OnNodeDown(uint32_t node, const absl::Status& reason);

  // It ends here and now, and so does everything over it; the others are told.
  void Abort(const absl::Status& reason);
  // Ends NCCL's communicators in order, or by force where the others do not end theirs in time, and
  // waits for that. False: an issuing thread is stuck, and the deadline has passed twice; the
  // world is left behind, and its issuers may still be called.
  bool Close();

  bool up() const;
  absl::Status status() const;

 private:
  explicit World(std::shared_ptr<WorldState> state) : state_(std::move(state)) {}
  const std::shared_ptr<WorldState> state_;
};

}  // namespace spccl::transport::nccl
