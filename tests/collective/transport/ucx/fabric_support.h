// What the tests of the UCX transport share: a sink that remembers, frames with known bytes, and
// fabrics that are connected.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/transport/ucx/fabric.h"

namespace spccl::transport::ucx {

inline constexpr std::chrono::seconds kPatience{20};

class RecordingSink : public Sink {
 public:
  struct Arrived {
    Tag tag;
    Frame frame;
  };
  using Failed = std::pair<uint32_t, absl::Status>;

  void OnFrame(const Tag& tag, Frame frame) override {
    const std::lock_guard lock(mutex_);
    frames_.push_back({tag, std::move(frame)});
    changed_.notify_all();
  }
  void OnPeerFailed(uint32_t rank, absl::Status reason) override {
    const std::lock_guard lock(mutex_);
    failures_.emplace_back(rank, std::move(reason));
    changed_.notify_all();
  }

  // Waits for so many frames; what there is if they do not come in time.
  std::vector<Arrived> AwaitFrames(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return frames_.size() >= count; });
    return std::exchange(frames_, {});
  }
  Failed AwaitFailure() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return !failures_.empty(); });
    return failures_.empty() ? Failed{UINT32_MAX, absl::DeadlineExceededError("no failure came")}
                             : failures_.front();
  }
  size_t frames() {
    const std::lock_guard lock(mutex_);
    return frames_.size();
  }
  size_t failures() {
    const std::lock_guard lock(mutex_);
    return failures_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrived> frames_;
  std::vector<Failed> failures_;
};

// Something that happens on another thread.
class Event {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool Await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// The bytes of frame `number`.
inline void Fill(std::byte* data, size_t bytes, uint64_t number) {
  uint64_t state = number * 0x9E3779B97F4A7C15ULL + bytes;
  for (size_t at = 0; at < bytes; at += sizeof(state)) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(data + at, &state, std::min(sizeof(state), bytes - at));
  }
}
inline Frame MakeFrame(size_t bytes, uint64_t number) {
  Frame frame = FramePool::Shared().Take(bytes);
  Fill(frame.data(), bytes, number);
  frame.set_size_bytes(bytes);
  return frame;
}
inline bool Holds(const Frame& frame, size_t bytes, uint64_t number) {
  std::vector<std::byte> expected(bytes);
  Fill(expected.data(), bytes, number);
  return frame.size_bytes() == bytes && std::memcmp(frame.data(), expected.data(), bytes) == 0;
}

inline FabricOptions OverTcp(uint32_t workers = 1, bool rendezvous = false) {
  return {.workers = workers, .rendezvous_over_tcp = rendezvous, .settings = {{"TLS", "tcp"}}};
}

inline std::unique_ptr<Fabric> MakeFabric(FabricOptions options = OverTcp()) {
  auto fabric = Fabric::Create(std::move(options));
  EXPECT_TRUE(fabric.ok()) << fabric.status();
  return *std::move(fabric);
}

inline OperationOptions Operation(uint64_t sequence, uint64_t count = 100) {
  return {.sequence = sequence,
          .facts = {.op = {.count = count}, .plan = 7},
          .largest_frame_bytes = size_t{4} << 20};
}

// Two nodes in one process, one rank each, connected; rank 0 is node 0's.
struct Pair {
  // Before the fabrics, which call back until they are gone.
  Event up[2];
  Event failed[2];
  absl::Status reason[2];
  std::unique_ptr<Fabric> fabric[2];
  std::shared_ptr<Link> link[2];

  explicit Pair(uint32_t workers0 = 1, uint32_t workers1 = 1, bool rendezvous = false) {
    fabric[0] = MakeFabric(OverTcp(workers0, rendezvous));
    fabric[1] = MakeFabric(OverTcp(workers1, rendezvous));
    const Offer offer[2] = {fabric[0]->MakeOffer(), fabric[1]->MakeOffer()};
    for (int node : {0, 1}) {
      auto made = fabric[node]->Connect({.name = node == 0 ? "node1" : "node0",
                                         .own = offer[node],
                                         .peer = offer[1 - node],
                                         .on_up = [this, node] { up[node].Set(); },
                                         .on_failed =
                                             [this, node](const absl::Status& status) {
                                               reason[node] = status;
                                               failed[node].Set();
                                             }});
      EXPECT_TRUE(made.ok()) << made.status();
      link[node] = *std::move(made);
    }
    EXPECT_TRUE(up[0].Await());
    EXPECT_TRUE(up[1].Await());
  }

  std::unique_ptr<Communicator> Open(int node, Key128 key) {
    std::vector<std::shared_ptr<Link>> links(2);
    links[1 - node] = link[node];
    auto made = fabric[node]->OpenCommunicator({key, links});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
};

}  // namespace spccl::transport::ucx
