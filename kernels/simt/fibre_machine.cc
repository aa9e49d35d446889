// Compiled without -fsanitize=thread, as fibre.cc is.
#include "kernels/simt/fibre_machine.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/simt/fibre.h"
#include "kernels/simt/fibre_stacks.h"

#if defined(SPCCL_FIBRE_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace spccl::simt {
namespace {

// Ends a lane's body when the launch has been given up.
struct Cancelled {};

// Memory order for ThreadSanitizer: what was released to a key happened before what follows its
// acquisition.
void Release(void* key) {
#if defined(SPCCL_FIBRE_TSAN)
  __tsan_release(key);
#endif
}
void Acquire(void* key) {
#if defined(SPCCL_FIBRE_TSAN)
  __tsan_acquire(key);
#endif
}

// A rendezvous that keeps recurring. A lane may arrive at the next one before another has left the
// last: the two take turns with two keys, so that the one that is late learns no more than it
// should.
struct Rendezvous {
  uint32_t generation = 0;
  char keys[2] = {};
  char* key() { return &keys[generation % 2]; }
};

struct SharedDelete {
  void operator()(uint8_t* memory) const {
    ::operator delete (memory, std::align_val_t{sizeof(Vec16)});
  }
};

const char* NameOf(WaitKind kind) {
  switch (kind) {
    case WaitKind::kSyncThreads:
      return "SyncThreads";
    case WaitKind::kSyncWarp:
      return "SyncWarp";
    case WaitKind::kBallot:
      return "Ballot";
    case WaitKind::kShuffle:
      return "Shuffle";
    case WaitKind::kPause:
      return "Pause";
  }
  return "";
}

std::string Describe(const Wait& wait) {
  const bool masked = wait.kind != WaitKind::kSyncThreads && wait.kind != WaitKind::kPause;
  return absl::StrCat(NameOf(wait.kind), "(",
                      masked ? absl::StrCat("mask ", absl::Hex(wait.mask, absl::kZeroPad8)) : "",
                      ") at ", wait.site.file, ":", wait.site.line);
}

bool SameCall(const Wait& a, const Wait& b) {
  return a.kind == b.kind && a.mask == b.mask && a.site == b.site;
}

// Adds thread `t` to a list of ranges, of which it is the highest yet.
void AddToRanges(std::vector<std::pair<uint32_t, uint32_t>>& ranges, uint32_t t) {
  if (!ranges.empty() && ranges.back().second + 1 == t) {
    ranges.back().second = t;
  } else {
    ranges.emplace_back(t, t);
  }
}

}  // namespace

struct LaneState {
  std::unique_ptr<Fibre> fibre;
  BlockState* block = nullptr;
  uint32_t thread = 0;
  bool done = true;
  bool waiting = false;
  Wait wait{};
  uint64_t result = 0;
};

struct BlockState {
  uint32_t number = 0;
  std::unique_ptr<uint8_t, SharedDelete> shared;
  std::vector<LaneState*> lanes;
  uint32_t left = 0;  // lanes that have not returned
  uint32_t at_barrier = 0;
  Rendezvous barrier;
  std::vector<Rendezvous> warps;
};

FibreMachine::FibreMachine(Options options)
    : rng_(options.seed), resident_blocks_(std::max(options.resident_blocks, 1u)) {}

FibreMachine::~FibreMachine() {
  stopping_ = true;
  for (const auto& lane : lanes_) lane->fibre->Resume();
}

void FibreMachine::GrowTo(uint32_t lanes) {
  const auto before = static_cast<uint32_t>(lanes_.size());
  if (lanes <= before) return;
  stacks_.push_back(std::make_unique<FibreStacks>(lanes - before));
  for (uint32_t i = before; i < lanes; ++i) {
    lanes_.push_back(std::make_unique<LaneState>());
    LaneState* lane = lanes_.back().get();
    lane->fibre =
        std::make_unique<Fibre>(stacks_.back()->at(i - before), [this, lane] { RunLanes(*lane); });
  }
}

// What a fibre does: one lane after the other.
void FibreMachine::RunLanes(LaneState& lane) {
  while (!stopping_) {
    Acquire(&start_key_);
    if (failure_.empty()) {
      try {
        FibreLane view(this, &lane, lane.thread, static_cast<uint32_t>(lane.block->lanes.size()),
                       lane.block->number, grid_blocks_);
        (*body_)(view, lane.block->shared.get());
      } catch (const Cancelled&) {  // NOLINT(bugprone-empty-catch): thrown to leave the body
      }
    }
    Release(&end_key_);
    lane.done = true;
    lane.fibre->Suspend();
  }
}

absl::Status FibreMachine::Run(const Shape& shape, const Body& body) {
  if (shape.threads == 0 || shape.threads % kWarpLanes != 0) {
    return absl::InvalidArgumentError("threads of a block must be a multiple of 32");
  }
  body_ = &body;
  grid_blocks_ = shape.blocks;
  failure_.clear();
  idle_resumes_ = 0;
  live_lanes_ = 0;
  ready_.clear();
  partial_ = rng_() % 2 == 0;
  not_started_.resize(shape.blocks);
  std::iota(not_started_.begin(), not_started_.end(), 0u);
  std::shuffle(not_started_.begin(), not_started_.end(), rng_);

  const uint32_t resident = std::min(resident_blocks_, shape.blocks);
  GrowTo(resident * shape.threads);
  blocks_.clear();
  for (uint32_t slot = 0; slot < resident; ++slot) {
    blocks_.push_back(std::make_unique<BlockState>());
    for (uint32_t t = 0; t < shape.threads; ++t) {
      blocks_.back()->lanes.push_back(lanes_[slot * shape.threads + t].get());
    }
    Start(*blocks_.back(), not_started_.back(), shape);
    not_started_.pop_back();
  }
  Loop(shape);
  if (!failure_.empty()) Cancel();
  Acquire(&end_key_);
  blocks_.clear();
  return failure_.empty() ? absl::OkStatus() : absl::FailedPreconditionError(failure_);
}

void FibreMachine::Start(BlockState& block, uint32_t number, const Shape& shape) {
  block.number = number;
  block.left = shape.threads;
  block.at_barrier = 0;
  block.warps.assign(shape.threads / kWarpLanes, Rendezvous());
  // Exactly as large as asked for, so that AddressSanitizer sees the byte behind it.
  block.shared.reset(static_cast<uint8_t*>(
      ::operator new (std::max<size_t>(shape.shared_bytes, 1), std::align_val_t{sizeof(Vec16)})));
  for (size_t i = 0; i < shape.shared_bytes; ++i) {
    block.shared.get()[i] = static_cast<uint8_t>(rng_());
  }
  Release(&start_key_);
  for (uint32_t t = 0; t < shape.threads; ++t) {
    LaneState& lane = *block.lanes[t];
    lane.block = &block;
    lane.thread = t;
    lane.done = false;
    MakeReady(lane);
    ++live_lanes_;
  }
}

void FibreMachine::Loop(const Shape& shape) {
  while (live_lanes_ != 0 && failure_.empty()) {
    if (ready_.empty()) {
      failure_ = absl::StrCat("lanes wait for ever: ", DescribeWaits());
      return;
    }
    LaneState& lane = Pick();
    Resume(lane);
    if (!failure_.empty()) return;
    Settle(lane);
    BlockState& block = *lane.block;
    if (block.left != 0) continue;
    Acquire(&end_key_);
    block.shared.reset();
    if (not_started_.empty()) continue;
    Start(block, not_started_.back(), shape);
    not_started_.pop_back();
  }
}

// Any ready lane; in every second launch mostly those of one warp, so that it runs far ahead.
LaneState& FibreMachine::Pick() {
  size_t at = rng_() % ready_.size();
  if (partial_) {
    const auto warp_of = [](const LaneState& lane) {
      return lane.block->number << 5 | lane.thread / kWarpLanes;
    };
    if (rng_() % 128 == 0) favourite_ = warp_of(*ready_[at]);
    for (int probe = 0; probe < 8 && warp_of(*ready_[at]) != favourite_; ++probe) {
      at = rng_() % ready_.size();
    }
  }
  LaneState& lane = *ready_[at];
  ready_[at] = ready_.back();
  ready_.pop_back();
  return lane;
}

void FibreMachine::MakeReady(LaneState& lane) {
  lane.waiting = false;
  ready_.push_back(&lane);
}

void FibreMachine::Resume(LaneState& lane) {
  ++switches_;
  lane.fibre->Resume();
}

// Files a lane that has ended its step, and releases whom that lets go on.
void FibreMachine::Settle(LaneState& lane) {
  BlockState& block = *lane.block;
  if (lane.done) {
    idle_resumes_ = 0;
    --block.left;
    --live_lanes_;
    return;
  }
  if (lane.wait.kind == WaitKind::kPause) {
    MakeReady(lane);
    // Long enough that each lane has had its turn many times over, whatever was drawn.
    if (++idle_resumes_ > 1000 + 64 * uint64_t{live_lanes_}) {
      lane.waiting = true;
      failure_ =
          absl::StrCat("lanes wait for ever, one of them in a loop: block ", block.number, " lane ",
                       lane.thread, " in ", Describe(lane.wait), "; ", DescribeWaits());
    }
    return;
  }
  idle_resumes_ = 0;
  lane.waiting = true;
  if (lane.wait.kind == WaitKind::kSyncThreads) {
    ++block.at_barrier;
    MeetThreads(block);
  } else {
    MeetWarp(lane);
  }
}

void FibreMachine::MeetThreads(BlockState& block) {
  if (block.at_barrier != block.lanes.size()) return;
  for (const LaneState* other : block.lanes) {
    if (SameCall(other->wait, block.lanes[0]->wait)) continue;
    failure_ = absl::StrCat("lanes meet in different barriers: ", DescribeWaits());
    return;
  }
  block.at_barrier = 0;
  ++block.barrier.generation;
  for (LaneState* other : block.lanes) MakeReady(*other);
}

void FibreMachine::MeetWarp(LaneState& lane) {
  BlockState& block = *lane.block;
  const uint32_t first = lane.thread / kWarpLanes * kWarpLanes;
  const uint32_t own = 1u << (lane.thread - first);
  const auto complain = [&](const char* what) {
    failure_ = absl::StrCat(what, ": block ", block.number, " lane ", lane.thread, " in ",
                            Describe(lane.wait), "; ", DescribeWaits());
  };
  if ((lane.wait.mask & own) == 0) return complain("a lane is not in its own mask");
  bool all_here = true;
  for (uint32_t l = 0; l < kWarpLanes; ++l) {
    if ((lane.wait.mask >> l & 1) == 0) continue;
    const LaneState& other = *block.lanes[first + l];
    if (!other.waiting) {
      all_here = false;
    } else if (!SameCall(other.wait, lane.wait)) {
      // It may come here when it is through with a call that does not need this lane.
      const bool needs_us =
          other.wait.kind == WaitKind::kSyncThreads || (other.wait.mask & own) != 0;
      if (needs_us) return complain("lanes of a warp have diverged");
      all_here = false;
    }
  }
  if (all_here) ReleaseWarp(lane);
}

void FibreMachine::ReleaseWarp(LaneState& lane) {
  BlockState& block = *lane.block;
  const Wait& wait = lane.wait;
  LaneState* const* warp = &block.lanes[lane.thread / kWarpLanes * kWarpLanes];
  uint32_t ballot = 0;
  for (uint32_t l = 0; l < kWarpLanes; ++l) {
    if ((wait.mask >> l & 1) != 0 && warp[l]->wait.value != 0) ballot |= 1u << l;
  }
  if (wait.kind == WaitKind::kSyncWarp) ++block.warps[lane.thread / kWarpLanes].generation;
  const uint32_t mask = wait.mask;
  for (uint32_t l = 0; l < kWarpLanes; ++l) {
    if ((mask >> l & 1) == 0) continue;
    LaneState& other = *warp[l];
    if (other.wait.kind == WaitKind::kShuffle) {
      const uint32_t source = other.wait.source;
      // What a GPU gives of a lane outside the mask is undefined.
      other.result = (mask >> source & 1) != 0 ? warp[source]->wait.value : rng_();
    } else {
      other.result = ballot;
    }
    MakeReady(other);
  }
}

// Lets every lane that has begun leave its body, by an exception.
void FibreMachine::Cancel() {
  for (const auto& block : blocks_) {
    for (LaneState* lane : block->lanes) {
      if (!lane->done) Resume(*lane);
    }
  }
}

// The lanes of all resident blocks that wait or have returned while others wait, by what they wait
// for.
std::string FibreMachine::DescribeWaits() const {
  constexpr size_t kMostGroups = 8;
  struct Group {
    std::string what;
    std::vector<std::pair<uint32_t, uint32_t>> lanes;
  };
  std::vector<std::string> lines;
  for (const auto& block : blocks_) {
    std::vector<Group> groups;
    if (block->left == 0) continue;
    for (const LaneState* lane : block->lanes) {
      if (!lane->done && !lane->waiting) continue;
      const std::string what = lane->done ? "have returned" : "wait in " + Describe(lane->wait);
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const Group& g) { return g.what == what; });
      if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
      AddToRanges(group->lanes, lane->thread);
    }
    for (const Group& group : groups) {
      const auto print = [](std::string* out, const std::pair<uint32_t, uint32_t>& range) {
        absl::StrAppend(out, range.first);
        if (range.first != range.second) absl::StrAppend(out, "-", range.second);
      };
      lines.push_back(absl::StrCat("block ", block->number, " lanes ",
                                   absl::StrJoin(group.lanes, ",", print), " ", group.what));
    }
  }
  if (lines.size() > kMostGroups) lines.resize(kMostGroups);
  return absl::StrJoin(lines, "; ");
}

uint64_t FibreMachine::Meet(LaneState& lane, const Wait& wait) {
  lane.wait = wait;
  char* key = nullptr;
  if (wait.kind == WaitKind::kSyncThreads) key = lane.block->barrier.key();
  if (wait.kind == WaitKind::kSyncWarp) key = lane.block->warps[lane.thread / kWarpLanes].key();
  if (key != nullptr) Release(key);
  lane.fibre->Suspend();
  if (!failure_.empty()) throw Cancelled();
  if (key != nullptr) Acquire(key);
  return lane.result;
}

void FibreMachine::Fail(LaneState& lane, Site site, const std::string& what) {
  failure_ = absl::StrCat(what, ": block ", lane.block->number, " lane ", lane.thread, " at ",
                          site.file, ":", site.line);
  throw Cancelled();
}

uint64_t FibreLane::Meet(const Wait& wait) {
  return machine_->Meet(*state_, wait);
}

void FibreLane::FailMisaligned(const void* p, Site site) {
  machine_->Fail(*state_, site,
                 absl::StrCat("a 128-bit access is not aligned, address ",
                              absl::Hex(reinterpret_cast<uintptr_t>(p))));
}

}  // namespace spccl::simt
