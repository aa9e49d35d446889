// Worlds of several nodes in one process, over the fake NCCL.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/transport/nccl/world.h"
#include "tests/collective/transport/nccl/test_gpu.h"
#include "tests/support/fake_nccl/fake_nccl.h"

namespace spccl::transport::nccl {

inline constexpr std::chrono::seconds kPatience{60};

inline FakeNccl& Fake() {
  static FakeNccl* const fake = [] {
    void* const handle = ::dlopen(SPCCL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << ::dlerror();
    return reinterpret_cast<FakeNccl* (*)()>(::dlsym(handle, "fake_nccl"))();
  }();
  return *fake;
}

inline std::shared_ptr<const Library> FakeLibrary() {
  auto library = Library::Load(SPCCL_FAKE_NCCL);
  EXPECT_TRUE(library.ok()) << library.status();
  return *library;
}

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

// The control connections between the nodes: each node's arrive on a thread of its own.
class TestNet {
 public:
  // What arrives in place of a message: none loses it.
  using Tamper =
      std::function<std::vector<std::string>(uint32_t from, uint32_t to, std::string bytes)>;

  explicit TestNet(size_t nodes) : ends_(nodes) {
    for (uint32_t node = 0; node < nodes; ++node) {
      ends_[node].control.net = this;
      ends_[node].control.node = node;
    }
  }
  ~TestNet() { Stop(); }

  Control* control(uint32_t node) { return &ends_[node].control; }
  // What was sent before waits for it.
  void Connect(uint32_t node, World* world) {
    ends_[node].thread.Post([this, node, world] {
      ends_[node].world = world;
      for (auto& [from, bytes] : std::exchange(ends_[node].early, {}))
        world->OnControl(from, bytes);
    });
  }
  void SetTamper(Tamper tamper) {
    const std::lock_guard lock(mutex_);
    tamper_ = std::move(tamper);
  }
  // Nothing goes to it or comes from it any more.
  void Cut(uint32_t node) {
    const std::lock_guard lock(mutex_);
    ends_[node].cut = true;
  }
  // What was sent before has arrived.
  void Flush() {
    for (End& end : ends_) end.thread.Flush();
  }
  void Stop() {
    for (End& end : ends_) end.thread.Finish();
  }

 private:
  struct NodeControl final : Control {
    TestNet* net = nullptr;
    uint32_t node = 0;
    void Send(uint32_t to, std::string bytes) override { net->Send(node, to, std::move(bytes)); }
  };
  struct End {
    NodeControl control;
    World* world = nullptr;  // touched by the thread only
    std::vector<std::pair<uint32_t, std::string>> early;
    bool cut = false;
    Worker thread;
  };

  void Send(uint32_t from, uint32_t to, std::string bytes) {
    const std::lock_guard lock(mutex_);
    if (ends_[from].cut || ends_[to].cut) return;
    if (!tamper_) return Pass(from, to, std::move(bytes));
    for (std::string& one : tamper_(from, to, std::move(bytes))) Pass(from, to, std::move(one));
  }
  void Pass(uint32_t from, uint32_t to, std::string bytes) {
    ends_[to].thread.Post([this, from, to, bytes = std::move(bytes)]() mutable {
      End& end = ends_[to];
      if (end.world == nullptr) {
        end.early.emplace_back(from, std::move(bytes));
      } else {
        end.world->OnControl(from, bytes);
      }
    });
  }

  std::mutex mutex_;
  Tamper tamper_;
  std::deque<End> ends_;
};

class Cluster {
 public:
  using Adjust = std::function<void(WorldOptions*)>;

  explicit Cluster(std::vector<uint32_t> node_of_rank, uint64_t seed = 0, const Adjust& adjust = {},
                   const TestNet::Tamper& tamper = {})
      : node_of_rank_(std::move(node_of_rank)),
        nodes_(1 + *std::max_element(node_of_rank_.begin(), node_of_rank_.end())),
        events(nodes_),
        net(nodes_),
        worlds(nodes_) {
    Fake().Reset({.seed = seed, .enqueue = TestGpu::Enqueue});
    if (tamper) net.SetTamper(tamper);
    for (size_t rank = 0; rank < node_of_rank_.size(); ++rank) {
      gpus.push_back(std::make_unique<TestGpu>(static_cast<int>(rank)));
    }
    for (uint32_t node = 0; node < nodes_; ++node) {
      WorldOptions options{.library = FakeLibrary(),
                           .node_of_rank = node_of_rank_,
                           .node = node,
                           .root = 0,
                           .locals = {},
                           .control = net.control(node)};
      for (uint32_t rank = 0; rank < node_of_rank_.size(); ++rank) {
        TestGpu* const gpu = gpus[rank].get();
        if (node_of_rank_[rank] == node) options.locals.push_back({rank, gpu, gpu});
      }
      options.on_up = [this, node] { events[node].up.Set(); };
      options.on_failed = [this, node](uint32_t rank, const absl::Status& reason) {
        events[node].rank = rank;
        events[node].reason = reason;
        events[node].failed.Set();
      };
      if (adjust) adjust(&options);
      auto world = World::Create(std::move(options));
      EXPECT_TRUE(world.ok()) << world.status();
      worlds[node] = *std::move(world);
    }
    for (uint32_t node = 0; node < nodes_; ++node) net.Connect(node, worlds[node].get());
    for (const auto& world : worlds) world->Want();
  }
  ~Cluster() { Close(); }

  // Ends everything and looks whether anything is left.
  void Close() {
    if (closed_) return;
    closed_ = true;
    net.Stop();
    // Together: NCCL's ranks end together.
    std::vector<std::thread> closing;
    for (auto& world : worlds) closing.emplace_back([&world] { world.reset(); });
    for (std::thread& thread : closing) thread.join();
    EXPECT_EQ(Fake().live_communicators(), 0U);
    for (const auto& gpu : gpus) gpu->Flush();
    for (const auto& gpu : gpus) EXPECT_EQ(gpu->frames_out(), 0U);
  }

  size_t nodes() const { return nodes_; }
  uint32_t node_of(uint32_t rank) const { return node_of_rank_[rank]; }
  size_t ranks() const { return node_of_rank_.size(); }

  bool AwaitUp() {
    bool all = true;
    for (auto& one : events) all = one.up.Await() && all;
    return all;
  }

  // One communicator over all ranks, rank i on GPU i, or as given.
  std::vector<std::unique_ptr<Communicator>> OpenAll(
      uint64_t key, std::optional<std::vector<uint32_t>> map = std::nullopt) {
    if (!map.has_value()) {
      map.emplace();
      for (uint32_t rank = 0; rank < ranks(); ++rank) map->push_back(rank);
    }
    std::vector<std::unique_ptr<Communicator>> all(nodes_);
    for (uint32_t node = 0; node < nodes_; ++node) {
      auto opened = worlds[node]->OpenCommunicator({1, key}, *map);
      EXPECT_TRUE(opened.ok()) << opened.status();
      if (opened.ok()) all[node] = *std::move(opened);
    }
    return all;
  }

 private:
  const std::vector<uint32_t> node_of_rank_;
  const size_t nodes_;
  bool closed_ = false;

 public:
  struct Events {
    Event up, failed;
    uint32_t rank = UINT32_MAX;
    absl::Status reason;
  };
  std::vector<std::unique_ptr<TestGpu>> gpus;
  std::deque<Events> events;  // by node
  TestNet net;
  std::vector<std::unique_ptr<World>> worlds;
};

inline constexpr uint64_t kLargest = size_t{16} << 20;
inline OperationOptions Operation(uint64_t sequence, uint64_t plan = 7) {
  return {.sequence = sequence, .plan = plan, .largest_frame_bytes = kLargest};
}

// The bytes of frame `number`: a header of its own kind first.
inline void Fill(std::byte* data, size_t bytes, uint64_t number) {
  uint64_t state = number * 0x9E3779B97F4A7C15ULL + bytes;
  for (size_t at = 0; at < bytes; at += sizeof(state)) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(data + at, &state, std::min(sizeof(state), bytes - at));
  }
}
inline Frame MakeFrame(TestGpu* gpu, size_t bytes, uint64_t number) {
  Frame frame = *gpu->Take(bytes);
  Fill(frame.data(), bytes, number);
  frame.set_size_bytes(bytes);
  if (bytes >= kHeadBytes) std::memcpy(frame.header(), frame.data(), kHeadBytes);
  return frame;
}
inline bool Holds(const Frame& frame, size_t bytes, uint64_t number) {
  std::vector<std::byte> expected(bytes);
  Fill(expected.data(), bytes, number);
  if (frame.size_bytes() != bytes) return false;
  if (bytes >= kHeadBytes && std::memcmp(frame.header(), expected.data(), kHeadBytes) != 0) {
    return false;
  }
  return bytes == 0 || std::memcmp(frame.data(), expected.data(), bytes) == 0;
}

class RecordingSink final : public Sink {
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
  void OnRoom() override {
    const std::lock_guard lock(mutex_);
    ++rooms_;
    changed_.notify_all();
  }

  // Waits for so many frames; what there is if they do not come in time, or it fails.
  std::vector<Arrived> AwaitFrames(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience,
                      [&] { return frames_.size() >= count || !failures_.empty(); });
    return std::exchange(frames_, {});
  }
  Failed AwaitFailure() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return !failures_.empty(); });
    return failures_.empty() ? Failed{UINT32_MAX, absl::DeadlineExceededError("no failure came")}
                             : failures_.front();
  }
  bool AwaitRoom() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return rooms_ > 0; });
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
  size_t rooms_ = 0;
};

}  // namespace spccl::transport::nccl
