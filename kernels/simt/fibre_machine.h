// A GPU for kernels that runs on one thread of the CPU: every lane is a fibre, a scheduler resumes
// them in an order drawn from a seed, several blocks at a time. What a GPU leaves undefined this
// finds or makes visible: lanes that diverge or wait for ever end the launch with a diagnosis,
// shuffles from lanes outside the mask give noise, shared memory begins as noise, 128-bit accesses
// must be aligned. Memory errors and races are the sanitizers' to find: shared memory is a heap
// block of its exact size, and the machine orders memory only where the lane's contract does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/simt/fibre_lane.h"

namespace spccl::simt {

struct BlockState;
class FibreStacks;

class FibreMachine {
 public:
  struct Options {
    uint64_t seed = 0;
    uint32_t resident_blocks = 3;  // in flight at a time, at most
  };
  explicit FibreMachine(Options options);
  ~FibreMachine();
  FibreMachine(const FibreMachine&) = delete;
  FibreMachine& operator=(const FibreMachine&) = delete;

  struct Shape {
    uint32_t blocks;
    uint32_t threads;  // a block; a multiple of 32
    size_t shared_bytes;
  };
  using Body = std::function<void(FibreLane& lane, void* shared)>;
  // Runs `body` once a lane, with its block's shared memory (aligned to 16). Blocks start in any
  // order. An error holds the diagnosis: which lanes, in which operation, with which mask, at which
  // place; memory is then as the lanes left it. Every launch draws a schedule of its own.
  absl::Status Run(const Shape& shape, const Body& body);

  // Runs a kernel: a type with kThreads, Shared, Params and a static Run(lane, shared, params).
  template <class K>
  absl::Status Launch(uint32_t blocks, const typename K::Params& params) {
    return Run({blocks, K::kThreads, sizeof(typename K::Shared)},
               [&params](FibreLane& lane, void* shared) {
                 K::Run(lane, *static_cast<typename K::Shared*>(shared), params);
               });
  }

  // The next launches' schedules are drawn as a new machine's of this seed would be.
  void Reseed(uint64_t seed) { rng_.seed(seed); }
  uint64_t switches() const { return switches_; }  // to a lane, since the machine was made

 private:
  friend class FibreLane;

  void GrowTo(uint32_t lanes);
  void RunLanes(LaneState& lane);
  void Start(BlockState& block, uint32_t number, const Shape& shape);
  void Loop(const Shape& shape);
  LaneState& Pick();
  void Resume(LaneState& lane);
  void Settle(LaneState& lane);
  void MeetThreads(BlockState& block);
  void MeetWarp(LaneState& lane);
  void ReleaseWarp(LaneState& lane);
  void Finish(BlockState& block);
  void MakeReady(LaneState& lane);
  void Cancel();
  std::string DescribeWaits() const;

  // On the lane's side: ends its step, and does not return if the launch has been given up.
  uint64_t Meet(LaneState& lane, const Wait& wait);
  [[noreturn]] void Fail(LaneState& lane, Site site, const std::string& what);

  std::mt19937_64 rng_;
  uint32_t resident_blocks_;
  uint64_t switches_ = 0;
  std::vector<std::unique_ptr<FibreStacks>> stacks_;  // of the lanes' fibres
  std::vector<std::unique_ptr<LaneState>> lanes_;
  std::vector<std::unique_ptr<BlockState>> blocks_;  // the resident ones

  // Of the current launch.
  const Body* body_ = nullptr;
  std::vector<LaneState*> ready_;
  std::vector<uint32_t> not_started_;  // block numbers, in the order to start them from the back
  uint32_t grid_blocks_ = 0;
  uint32_t live_lanes_ = 0;
  uint32_t favourite_ = 0;  // of the ready lanes, those of this block and warp go first mostly
  bool partial_ = false;
  uint64_t idle_resumes_ = 0;  // since a lane last did anything but wait in a loop
  bool stopping_ = false;
  std::string failure_;
  // What ThreadSanitizer knows the lanes' begins and ends by: a lane knows what the machine knew
  // when its block started, and nothing of lanes that have ended since.
  char start_key_ = 0;
  char end_key_ = 0;
};

}  // namespace spccl::simt
