// Runs a plan on host memory, frame by frame.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "collective/plan/plan.h"
#include "collective/policy/settings.h"
#include "collective/runtime/host/step_runner.h"
#include "collective/runtime/task.h"
#include "collective/transport/transport.h"

namespace spccl::runtime {

// Every participant of the plan, in every lane, is a small state machine: it can run when its next
// step is one that receives nothing, or when that step's frame is there. RunOne runs one step of
// one machine (several, while they are tiny). Only a window of lanes is open at a time, so that
// there is work for every thread, but frames stay few: a lane of a ring never has more frames than
// ranks, so the task holds at most lanes x ranks frames, and one more for each running thread.
//
// One lock guards who runs what; it is never held while data is touched. Machines that became
// runnable last run first: a frame is then worked on by the thread in whose cache it is.
//
// All participants run here. To spread an operation over nodes, three things are to be added:
// - Options gets the set of participants that run here; the others' frames come from the transport,
//   which the task asks no different questions (see transport/transport.h).
// - A frame may come before its lane is open here: it waits in its slot instead of being refused.
// - Credit. Here a lane closes only when all participants are through it, which holds everyone to
//   the window; a participant elsewhere that only sends (a broadcast's root) would run ahead. A
//   lane of the window should open there only when the next participant has said that it has room.
class PlanTask final : public Task, private transport::Sink {
 public:
  struct Options {
    OpDesc op;
    std::shared_ptr<const plan::Plan> plan;  // has passed plan::Check; of ranks.size() participants
    std::vector<RankBuffers> ranks;
    std::vector<uint32_t> node_of_rank;  // empty: one node
    policy::Settings settings;
    size_t slice_bytes = 0;   // of partial sums; 0: chosen by measurement (see plan_task.cc)
    uint32_t open_lanes = 0;  // 0: enough for the machine's threads
    std::unique_ptr<transport::Transport> transport;
    transport::FramePool* pool = nullptr;  // outlives the task
  };

  PlanTask(Options options, DoneFn done);
  ~PlanTask() override;

  Progress RunOne(Scratch scratch) override;
  void Cancel(absl::Status reason, int culprit_rank) override;

 private:
  struct Arrived {
    transport::Tag tag;
    transport::Frame frame;
  };
  enum class State : uint8_t { kWaiting, kQueued, kRunning, kDone };
  struct Machine {
    uint32_t rank = 0;
    uint32_t slot = 0;
    size_t step = 0;
    State state = State::kWaiting;
    policy::SendPolicy policy;
    absl::InlinedVector<Arrived, 2> inbox;  // in order of arrival
  };
  // Lanes slot, slot + window, slot + 2 window, ... run here, one after the other.
  struct Slot {
    uint64_t lane = 0;
    uint32_t unfinished = 0;
    std::vector<Machine> machines;  // by rank
  };
  struct Claim {
    Machine* machine = nullptr;
    uint64_t lane = 0;
    std::span<const plan::Step> steps;
    transport::Frame frame;
  };

  void OnFrame(const transport::Tag& tag, transport::Frame frame) override;
  void OnPeerFailed(uint32_t rank, absl::Status reason) override;

  Progress RunStep(Scratch scratch, uint64_t* work_elements);
  // The following require mutex_.
  Progress ClaimStep(Claim* claim);
  std::span<const plan::Step> StepsAt(const Machine& machine) const;
  bool CanRun(const Machine& machine) const;
  void QueueIfRunnable(Machine* machine);
  void OpenLane(uint32_t slot, uint64_t lane);
  void EndSteps(const Claim& claim, const StepResult& result);
  void Fail(absl::Status status, int culprit_rank);
  absl::Status CheckTag(const transport::Tag& tag) const;
  bool TakeEnd();   // true for the one caller that must call End()
  bool TakeWake();  // true if the waker must be called

  void End();

  const std::shared_ptr<const plan::Plan> plan_;
  const policy::SendPolicy first_policy_;
  StepContext context_;
  const std::unique_ptr<transport::Transport> transport_;
  DoneFn done_;

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::deque<Machine*> runnable_;
  uint64_t unfinished_lanes_ = 0;
  uint32_t running_ = 0;
  bool failed_ = false, ended_ = false;
  bool parked_ = false;  // a thread was told kIdle since the last wake
  OpResult result_;
};

}  // namespace spccl::runtime
