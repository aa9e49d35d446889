// The worlds of this daemon's GPUs: NCCL's communicators over all GPUs of some daemons, one for
// each set of daemons, which all communicators over these share.
//
// How they come about, fail and end: docs/adr/0021-nccl-transport.md, "In the daemon".
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/transport/nccl/library.h"
#include "collective/transport/nccl/wire.h"
#include "collective/transport/transport.h"
#include "daemon/gpu_offer.h"
#include "daemon/nodes.h"

namespace spccl::daemon {

struct GpuWorld;

// In how many worlds NCCL runs on a node at most; its smallest GPU has so many multiprocessors.
size_t MostGpuWorlds(int multiprocessors);

// The way between GPUs of one communicator. Its transports are gone before it, it before its
// GpuWorlds.
class GpuChannel {
 public:
  virtual ~GpuChannel() = default;
  // As NodeChannel::OpenGpuOperation.
  virtual absl::StatusOr<std::unique_ptr<transport::Transport>> OpenOperation(
      uint64_t sequence, uint64_t plan, uint64_t largest_frame_bytes,
      std::span<runtime::Gpu* const> rails) = 0;
};

// Thread-safe; nothing waits for a peer or a GPU but Stop and the end.
class GpuWorlds {
 public:
  struct Options {
    runtime::Gpus* gpus = nullptr;  // outlive it
    std::shared_ptr<const transport::nccl::Library> library;
    // To the daemon of a node; must not call back.
    std::function<void(NodeId, const v1::PeerMessage&)> send;
    // How long a world stays that no communicator uses, from when it was last used or offered: to
    // make one takes seconds, and a communicator to which it was offered may take a while to form.
    int64_t keep_ns = 120'000'000'000;
  };
  explicit GpuWorlds(Options options);
  // All worlds end, in order where the others' do.
  ~GpuWorlds();

  // Worlds that are offered stay for a while.
  GpuOffer Offer();

  // A communicator over the nodes of `plan`, whose ranks are on the nodes `node_of_rank` (0: this
  // one). Aborted: the world has failed or ended meanwhile.
  absl::StatusOr<std::unique_ptr<GpuChannel>> OpenChannel(const transport::nccl::Key128& key,
                                                          const GpuWorldPlan& plan,
                                                          const std::vector<NodeId>& node_of_rank);

  // What a node said; of a world that is gone here it is nothing any more.
  void OnControl(NodeId node, const v1::NcclControl& message);
  void OnNodeDown(NodeId node, const absl::Status& reason);

  // All worlds fail, and the others are told while they can be.
  void Abort(const absl::Status& reason);

 private:
  class Channel;
  // Of one set of daemons.
  struct Set {
    uint64_t last_generation = 0;
    std::shared_ptr<GpuWorld> world;  // of that generation; null: it has failed, or is gone
  };

  absl::StatusOr<std::shared_ptr<GpuWorld>> WorldOf(const GpuWorldPlan& plan);
  absl::StatusOr<std::shared_ptr<GpuWorld>> Make(uint64_t set, const GpuWorldPlan& plan);
  std::vector<std::shared_ptr<GpuWorld>> All() const;
  // An operation is to be opened. ResourceExhausted: NCCL runs in too many already.
  absl::Status NoteUse(GpuWorld& world);
  void OnFailed(const GpuWorld* world);
  // Whether memory can be freed on all GPUs, which an end of NCCL's does, without a wait for ranks.
  bool MayFree() const;
  void Leave(const std::shared_ptr<GpuWorld>& world);
  void ForgetOldLocked();
  // Closes what nobody uses any more.
  void Run();

  const Options options_;
  const size_t most_used_;  // worlds that NCCL runs in
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Set> sets_;
  std::vector<std::shared_ptr<GpuWorld>> worlds_;  // that are not closed
  bool stopping_ = false;
  std::thread closer_;
};

}  // namespace spccl::daemon
