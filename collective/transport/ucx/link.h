// A connection to one peer daemon, shared by all communicators and operations.
//
// What UCX has not put out yet is bounded (send_window.h). Frames for which there is no room wait,
// and go by the weights of their jobs (send_queue.h).
//
// Flow control. A receiver that has not opened an operation yet has nowhere to put its frames, so
// it keeps them; how much, it must bound. Each side therefore tells the others when it opens an
// operation (kOpen). Before that has arrived, a sender may have at most kEarlyBytes on the link
// for all operations together; what is more waits at the sender until the peer opens (or closes the
// communicator). Waiting for one operation never holds up another. An honest sender can thus not
// overrun a receiver, and one that does is cut off.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collective/transport/ucx/send_queue.h"
#include "collective/transport/ucx/wire.h"
#include "collective/transport/ucx/worker.h"

namespace spccl::transport::ucx {

struct LinkCounters {
  uint64_t frames_sent = 0, bytes_sent = 0;  // handed to UCX; bytes of frames
  uint64_t frames_received = 0, bytes_received = 0;
  uint64_t frames_waiting = 0;  // until the peer opens their operation
  uint64_t unsent_bytes = 0;    // handed to UCX, not yet put out
  int64_t round_trip_ns = 0;    // of few bytes, when the link came up; 0 before
  double bytes_per_second = 0;  // from here to the peer, as Measure has found so far; 0: not yet
};

// Thread-safe. Made by Fabric::Connect.
class Link : public std::enable_shared_from_this<Link> {
 public:
  struct Options {
    std::string name;
    Key128 present;  // our proof, with each message
    Key128 expect;   // the peer's
    std::vector<Worker*> workers;
    std::function<void()> on_up;
    std::function<void(const absl::Status&)> on_failed;
  };
  explicit Link(Options options) : options_(std::move(options)), held_(options_.workers.size()) {}

  const std::string& name() const { return options_.name; }
  LinkCounters counters() const;
  // Which of UCX's transports and devices carry it, such as "tcp/eth0".
  std::string DescribeRoute() const;
  // True once messages go both ways and the peer has proved on this link that it knows the secret.
  bool up() const { return up_.load(std::memory_order_acquire); }
  // Finds out how fast it takes data, once in its life; see counters(). `done` is called when that
  // is over: by a worker's thread, or at once if it is already; never if the link fails before.
  // Requires up().
  void Measure(std::function<void()> done);
  // OK while the link works; it never works again after it has not.
  absl::Status status() const;

 private:
  friend class Fabric;
  friend class Communicator;
  friend struct CommunicatorState;
  friend class UcxTransport;

  // What was sent of one operation that the peer has not opened.
  struct Early {
    uint64_t charged_bytes = 0;
    std::deque<Outgoing> waiting;
  };
  struct Flow {
    std::shared_ptr<const LinkShare> share;
    std::optional<uint64_t> opened;  // by the peer: this operation and all before it
    bool closed_here = false, closed_there = false;
    std::map<uint64_t, Early> early;  // by sequence
  };
  using Batch = std::deque<Outgoing>;

  // What measures the link: our probes, which the peer times, and the peer's.
  struct Probing {
    Frame content;  // of ours, while some are to be sent
    bool begun = false, over = false;
    uint64_t sent = 0;
    uint64_t answered = 0;  // so many have arrived, the peer says
    double bytes_per_second = 0;
    std::vector<std::function<void()>> done;
    uint64_t arrived = 0;  // of the peer's
    std::array<int64_t, kProbes> arrived_ns{};
  };

  // Rounds of hello and answer: the first sets the connections up, of the others the shortest is
  // the round trip.
  void SendHello();
  void OnHello(uint64_t round);
  void OnAnswer(uint64_t round);

  void OpenFlow(const Key128& communicator, std::shared_ptr<const LinkShare> share);
  void CloseFlow(const Key128& communicator);
  // Takes a kOpen or kFrame.
  absl::Status Submit(const Message& message, Frame frame);
  // Whether more of the operation should be submitted now; if not, Fabric says when.
  bool HasRoom(const Key128& communicator, uint64_t sequence);
  // Sends what waits, as far as there is room. True if those who were told to wait may ask again.
  bool SendQueued();
  // The same whatever the room: nobody will say when there is some.
  void SendAllQueued();
  // True if something went that had waited.
  bool OnPeerOpened(const Key128& communicator, uint64_t sequence);
  bool OnPeerClosed(const Key128& communicator);
  // As many as there is room for, of those that are still to be sent.
  void SendProbes();
  absl::Status OnProbe();
  absl::Status OnProbed(uint64_t arrived, uint64_t eighth_ns);
  // The first failure's reason counts; false if there was one already.
  bool Fail(absl::Status reason);
  void CloseEndpoints();

  // The following require mutex_.
  void ReleaseLocked(Early* early, Batch* batch);
  void AdmitWaitingLocked(Batch* batch);
  bool AdmitLocked(Early* early, uint64_t cost_bytes);
  void EraseIfOverLocked(std::map<Key128, Flow>::iterator flow);
  bool SendBatch(Batch batch);  // true if there was anything
  void SendOrQueue(Outgoing one);
  void SendNow(const Message& message, Frame frame);

  const Options options_;
  std::vector<std::shared_ptr<Endpoint>> endpoints_;  // by worker; set before anyone else knows us
  const std::shared_ptr<SendWindow> window_ = std::make_shared<SendWindow>();

  std::atomic<bool> up_{false};
  std::atomic<int64_t> hello_ns_{0}, round_trip_ns_{0};
  std::atomic<uint64_t> timed_hellos_{0};  // asked
  std::atomic<uint64_t> frames_sent_{0}, bytes_sent_{0}, frames_received_{0}, bytes_received_{0};
  std::atomic<uint64_t> kept_bytes_{0};  // of early frames that we keep
  std::atomic<bool> stray_logged_{false};

  // Rendezvous, by worker; touched by its own thread only.
  struct Held {
    uint64_t receiving_bytes = 0;
    std::deque<std::pair<Message, Rendezvous>> waiting;
  };
  std::vector<Held> held_;

  mutable std::mutex mutex_;
  absl::Status status_;
  uint64_t early_bytes_ = 0;     // charged, of all flows
  uint64_t waiting_frames_ = 0;  // of all flows
  std::map<Key128, Flow> flows_;
  SendQueue queue_;
  Probing probing_;
};

}  // namespace spccl::transport::ucx
