// Runs a plan, frame by frame, on host memory or wherever its runner does.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "collective/policy/settings.h"
#include "collective/runtime/host/step_runner.h"
#include "collective/runtime/task.h"
#include "collective/transport/transport.h"

namespace spccl::runtime {

// Elements of a slice, for slices of `slice_bytes` of partial sums; 0: chosen by measurement (see
// plan_task.cc). Nodes that share an operation must come to the same.
// `largest_bytes`: what more than that is taken for.
uint64_t SliceElements(const OpDesc& op, size_t slice_bytes,
                       size_t largest_bytes = kLargestSliceBytes);

// The same for slices in GPUs' memory.
inline constexpr size_t kLargestGpuSliceBytes = transport::FramePool::kLargestFrame / 2;

// Runs the participants of a plan that are this node's; frames of the others come by the transport.
//
// Every participant, in every lane, is a small state machine: it can run when its next steps have
// their frame and the links that they send to have room. RunOne runs one run of steps of one
// machine (several, while they are tiny). Only a window of lanes is open at a time, so that there
// is work for every thread, but frames stay few: a lane of a ring never has more frames than
// participants.
//
// One lock guards who runs what; it is never held while data is touched. Machines that became
// runnable last run first: a frame is then worked on by the thread in whose cache it is.
//
// With a runner the task runs itself: what can run is handed to the runner at once, as far as lanes
// are open, by whoever made it so; all else is the same.
//
// Frames may come before their lane is open here, or before their participant is at their step:
// they wait. A frame that the plan does not have at that place is refused, so what waits is bounded
// by what the plan sends: at most, where others only send (a broadcast's root), the operation's
// data. What waits on this side for a link is bounded by Transport::HasRoom.
//
// Where the transport says that a frame is on its way which its participant passes on as it comes,
// its receivers on other nodes are told of it at once.
class PlanTask final : public Task, private transport::Sink {
 public:
  struct Options {
    OpDesc op;
    std::shared_ptr<const PreparedPlan> plan;
    std::vector<uint32_t> mine;          // participants that run here; empty: all
    std::vector<RankBuffers> ranks;      // by rank; what is not a member of `mine` is not looked at
    std::vector<uint32_t> node_of_rank;  // empty: one node
    policy::Settings settings;
    std::optional<policy::Costs> costs;  // between nodes: which format codec auto takes
    policy::Habit habit{};               // how the last operation of the kind went
    size_t slice_bytes = 0;
    uint32_t open_lanes = 0;  // 0: enough for the machine's threads, and for the way between nodes
    std::unique_ptr<transport::Transport> transport;
    transport::FramePool* pool = nullptr;  // outlives the task
    std::shared_ptr<StepRunner> runner;    // null: the threads that call RunOne, on host memory
  };

  // Frames may come, and the operation may fail, from within the constructor on; its end is told
  // from within RunOne or Cancel.
  PlanTask(Options options, DoneFn done);
  ~PlanTask() override;

  bool RunsItself() const override { return runner_ != nullptr; }
  void Start() override;
  Progress RunOne(Scratch scratch) override;
  void Cancel(absl::Status reason, int culprit_rank) override;
  TaskLook Look() override;

 private:
  struct Arrived {
    transport::Tag tag;
    transport::Frame frame;
  };
  using Inbox = absl::InlinedVector<Arrived, 2>;  // in order of arrival
  enum class State : uint8_t { kNoFrame, kNoRoom, kQueued, kRunning, kDone };
  // How long the next steps waited for their frame, and then for room; 0: they did not.
  struct WaitTimes {
    int64_t frame_since_ns = 0, frame_until_ns = 0;
    int64_t room_since_ns = 0, room_until_ns = 0;
  };
  struct Machine {
    uint32_t participant = 0;
    uint32_t slot = 0;
    size_t step = 0;
    State state = State::kNoFrame;
    int64_t waits_since_ns = 0;  // or runs since
    WaitTimes waited;            // before the steps that it is at
    policy::SendPolicy policy;
    Inbox inbox;
    HeldFrames held;
  };
  // Lanes slot, slot + window, slot + 2 window, ... run here, one after the other.
  struct Slot {
    uint64_t lane = 0;
    uint32_t unfinished = 0;
    std::vector<Machine> machines;  // as in mine_
  };
  struct Claim {
    Machine* machine = nullptr;
    uint64_t lane = 0;
    std::span<const plan::Step> steps;
    transport::Frame frame;
    WaitTimes waited;
  };

  void OnFrame(const transport::Tag& tag, transport::Frame frame) override;
  void OnPeerFailed(uint32_t rank, absl::Status reason) override;
  void OnRoom() override;
  void OnAnnounced(const transport::FrameSize& size) override;

  Progress RunStep(Scratch scratch, uint64_t* work_elements);
  // The following require mutex_.
  Progress ClaimStep(Claim* claim);
  std::span<const plan::Step> RunAt(const Machine& machine) const;
  bool HasFrame(const Machine& machine) const;
  bool HasRoom(const Machine& machine) const;
  void QueueIfRunnable(Machine* machine, bool at_end = true);
  void OpenLane(uint32_t slot, uint64_t lane);
  void EndSteps(const Claim& claim, const StepResult& result);
  void CountSends(const Claim& claim, const StepResult& result);
  void EndWait(Machine* machine);
  TaskLook::Line LineOf(const Machine& machine) const;
  void FailLocked(absl::Status status, int culprit_rank);
  absl::Status CheckTag(const transport::Tag& tag) const;
  std::optional<size_t> StepOf(const transport::Tag& tag, bool behind_announced) const;
  absl::Status TakeAnnounced(const transport::Tag& tag, uint64_t bytes);
  bool TakeEnd();   // true for the one caller that must call End()
  bool TakeWake();  // true if the waker must be called

  // With a runner.

  // Requires mutex_: claims all that can run.
  std::vector<Claim> TakeRuns();
  // Hands them over; if there are none, and only then, `this` may be gone already.
  void Launch(std::vector<Claim> claims);
  void EndRun(const Claim& claim, const StepResult& result);
  // What a run does that is none, for as long as it keeps the task from ending.
  void EndHold(absl::Status status, bool begun);
  // Requires mutex_. After a change by others than runs: what is to be done without the lock.
  struct Follow {
    bool wakes = false, cancels = false, holds = false;
    std::vector<Claim> claims;
  };
  Follow TakeFollow();
  void Do(Follow follow);

  // The claim's waits, to the ring of this thread.
  void WriteWaits(const Claim& claim) const;
  void FailFromAfar(absl::Status status, int culprit_rank);
  void End();
  // What the run that begins with this step passes on, as it came, to other nodes.
  std::vector<transport::Tag> PassedOn(uint32_t participant, size_t step, uint64_t lane) const;
  bool PassesOn() const;

  const std::vector<uint32_t> mine_;   // participants, ascending
  const std::vector<uint32_t> place_;  // by participant: in mine_; kNobody: elsewhere
  const std::optional<policy::Costs> costs_;
  const policy::SendPolicy first_policy_;
  const std::unique_ptr<transport::Transport> transport_;
  const std::shared_ptr<StepRunner> runner_;
  const StepContext context_;
  const bool passes_on_;
  DoneFn done_;

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::map<std::pair<uint64_t, uint32_t>, Inbox> early_;  // by lane and place: lanes not yet open
  // The same, of all lanes: what is on its way. Only if passes_on_.
  std::map<std::pair<uint64_t, uint32_t>, std::vector<transport::FrameSize>> announced_;
  std::deque<Machine*> runnable_;
  std::vector<Machine*> without_room_;
  uint64_t unfinished_lanes_ = 0;
  uint64_t runs_done_ = 0;
  uint32_t running_ = 0;
  bool failed_ = false, ended_ = false;
  bool begun_ = false;   // with a runner: it may be given runs
  bool parked_ = false;  // a thread was told kIdle since the last wake
  OpResult result_;
};

}  // namespace spccl::runtime
