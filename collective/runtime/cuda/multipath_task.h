// A large dense all-reduce over several GPUs of a node, of which a part may go over the host.
// docs/adr/0022-multipath.md
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "collective/runtime/cuda/host_rail.h"
#include "collective/runtime/cuda/path_rates.h"
#include "collective/runtime/cuda/rank_gate.h"
#include "collective/runtime/task.h"

namespace spccl::runtime {

// What its operations' rates are kept by.
PathRates::Kind KindOf(uint64_t communicator, const OpDesc& op, size_t ranks,
                       const std::vector<Gpu*>& rails);

// Two tasks that begin when all ranks are ready, and that end as one: the ranks are told when both
// have. Where one fails the other is cancelled. Keep it as MakeGpuTask says.
class MultipathTask final : public Task {
 public:
  struct Options {
    OpDesc op;
    std::vector<RankBuffers> ranks;
    std::vector<Gpu*> rails;
    // What goes over the host: whole slices of so many bytes, less than all; 0: nothing.
    uint64_t host_bytes = 0;
    size_t host_slice_bytes = 0;
    // The rest, or all, over the GPUs: the first `count` elements. Nobody is to be waited for.
    std::function<std::unique_ptr<Task>(uint64_t count, DoneFn done)> make_device;
    std::shared_ptr<PathRates> rates;
    PathRates::Kind kind;
  };
  MultipathTask(Gpus& gpus, Options options, DoneFn done);

  bool RunsItself() const override { return true; }
  void Start() override;
  std::shared_ptr<Task> ForChannels() override { return host_; }
  Progress RunOne(Scratch /*scratch*/) override { return Progress::kDone; }
  void Cancel(absl::Status reason, int culprit_rank) override;
  TaskLook Look() override;

 private:
  void Begin(const absl::Status& ready);
  void EndDevice(const OpResult& result);
  void EndHost(const OpResult& result);
  void EndPart(const OpResult& result);
  // Requires mutex_. True: that is why it fails.
  bool FailLocked(const absl::Status& status, int culprit_rank);
  void End();

  const OpDesc op_;
  const PathRates::Kind kind_;
  const std::function<std::unique_ptr<Task>(uint64_t count, DoneFn done)> make_device_;
  const std::shared_ptr<PathRates> rates_;
  const std::shared_ptr<RankGate> gate_;
  const std::shared_ptr<HostRail> host_;  // null: all goes over the GPUs

  std::mutex mutex_;
  std::shared_ptr<Task> device_;  // once begun
  DoneFn done_;
  OpResult result_;
  PathRates::Times times_;
  int64_t began_ns_ = 0;
  int parts_;  // that have not ended, begun or not
  bool started_ = false, failed_ = false;
};

}  // namespace spccl::runtime
