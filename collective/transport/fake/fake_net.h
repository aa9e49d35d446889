// A network for tests: frames wait until the test lets them go, one by one, in a seeded order that
// keeps each lane's order and no other; a participant may die.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collective/transport/transport.h"

namespace spccl::transport {

// Outlives the transports that it opens. Thread-safe.
class FakeNet {
 public:
  // One operation's. The node of each rank; empty: all are node 0.
  explicit FakeNet(uint64_t seed, std::vector<uint32_t> node_of_rank = {})
      : random_(seed), node_of_rank_(std::move(node_of_rank)) {}

  // The transport of one node; also carries frames between its own ranks. Once for each node.
  std::unique_ptr<Transport> Open(uint32_t node);

  // Delivers one waiting frame, chosen at random among the first of each lane's edge. False if none
  // waits. One thread at a time may call this.
  bool DeliverOne();

  // Changes the next delivered frame's bytes in place before it arrives.
  void CorruptNext(std::function<void(Frame*)> change);

  // Delivers the next frame under a tag that the test changed, to whom it was sent all the same.
  void RetagNext(std::function<void(Tag*)> change);

  // From the `after`-th delivery on, the rank is dead: its frames are lost, sends to it fail, and
  // all nodes but its own are told once (if there is only one, it is told).
  void Kill(uint32_t rank, uint64_t after, absl::Status reason);

  // Frames between nodes are announced, one by one, before they are delivered.
  void AnnounceFrames();

  // No node has room for more than so many frames that wait.
  void LimitRoom(size_t frames);

  uint64_t delivered() const;
  // The most frames that ever waited at once, for one node.
  size_t most_waiting() const;
  // Sizes that were told by AnnounceAhead, and of these, what was not sent yet.
  size_t told_ahead() const;
  size_t owed() const;

 private:
  class Port;
  struct Node {
    Sink* sink = nullptr;
    bool stopped = false;
    bool wants_room = false;
    size_t waiting = 0;      // frames on their way to it
    std::thread::id caller;  // who is in its sink now
  };
  using Edge = std::tuple<uint32_t, uint32_t, uint64_t>;  // from, to, lane
  struct Waiting {
    Tag tag;
    Frame frame;
    bool announced = false;
  };
  using TagKey = std::tuple<uint32_t, uint32_t, uint64_t, uint32_t, Phase>;
  static TagKey KeyOf(const Tag& tag) { return {tag.from, tag.to, tag.lane, tag.chunk, tag.phase}; }

  absl::Status Send(uint32_t node, const Tag& tag, Frame frame);
  absl::Status AnnounceAhead(uint32_t node, std::span<const FrameSize> sizes);
  bool HasRoom(uint32_t node, uint32_t to);
  void Stop(uint32_t node);

  // The following require mutex_.
  Node& NodeOf(uint32_t rank) { return nodes_[node_of_rank_.empty() ? 0 : node_of_rank_[rank]]; }
  bool Dead(uint32_t rank) const { return died_ && rank == victim_; }
  bool Dies();  // true if the victim dies now
  bool Full(const Node& node) const { return most_frames_ != 0 && node.waiting >= most_frames_; }
  std::vector<uint32_t> Started() const;
  // One of the edge's frames that may be announced now; null: none.
  Waiting* ToAnnounce(const Edge& edge, std::deque<Waiting>* waiting);
  // Calls the node's sink without the lock.
  void Call(std::unique_lock<std::mutex>* lock, Node* node, const std::function<void(Sink*)>& what);

  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  const std::vector<uint32_t> node_of_rank_;
  std::map<uint32_t, Node> nodes_;
  std::condition_variable left_sink_;
  std::map<Edge, std::deque<Waiting>> edges_;  // no empty queue
  size_t most_waiting_ = 0, most_frames_ = 0;
  uint64_t delivered_ = 0;
  std::function<void(Frame*)> corrupt_;
  std::function<void(Tag*)> retag_;
  bool announces_ = false;
  std::map<TagKey, uint64_t> owed_;
  size_t told_ahead_ = 0;
  bool killing_ = false, died_ = false;
  uint32_t victim_ = 0;
  uint64_t after_ = 0;
  absl::Status reason_;
};

}  // namespace spccl::transport
