// A transport for tests: frames wait until the test lets them go, one by one, in a seeded order
// that keeps each lane's order and no other; a participant may die.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "collective/transport/transport.h"

namespace spccl::transport {

class FakeTransport final : public Transport {
 public:
  explicit FakeTransport(uint64_t seed) : random_(seed) {}

  void Start(Sink* sink) override;
  absl::Status Send(const Tag& tag, Frame frame) override;
  void Stop() override;

  // Delivers one waiting frame, chosen at random among the first of each lane's edge. False if none
  // waits or the transport has stopped. One thread at a time may call this.
  bool DeliverOne();

  // Changes the next delivered frame's bytes in place before it arrives.
  void CorruptNext(std::function<void(Frame*)> change);

  // Delivers the next frame under a tag that the test changed.
  void RetagNext(std::function<void(Tag*)> change);

  // From the `after`-th delivery on, the rank is dead: its frames are lost, sends to it fail, and
  // the sink is told once.
  void Kill(uint32_t rank, uint64_t after, absl::Status reason);

  uint64_t delivered() const;
  // The most frames that ever waited at once.
  size_t most_waiting() const;

 private:
  using Edge = std::tuple<uint32_t, uint32_t, uint64_t>;  // from, to, lane
  struct Waiting {
    Tag tag;
    Frame frame;
  };

  bool DeadLocked(uint32_t rank) const { return died_ && rank == victim_; }
  // True if the victim dies now.
  bool DiesLocked();

  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  Sink* sink_ = nullptr;
  bool stopped_ = false;
  std::thread::id deliverer_;  // who is in the sink now; none: no thread
  std::condition_variable left_sink_;
  std::map<Edge, std::deque<Waiting>> edges_;  // no empty queue
  size_t waiting_ = 0, most_waiting_ = 0;
  uint64_t delivered_ = 0;
  std::function<void(Frame*)> corrupt_;
  std::function<void(Tag*)> retag_;
  bool killing_ = false, died_ = false;
  uint32_t victim_ = 0;
  uint64_t after_ = 0;
  absl::Status reason_;
};

}  // namespace spccl::transport
