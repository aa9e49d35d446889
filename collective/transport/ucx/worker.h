// One UCX worker and the thread that makes progress on it.
//
// UCX lets one thread at a time use a worker. Its own thread holds it while it looks for what
// arrived; a thread that sends takes it if it is free (so that a send needs no other thread) and
// else leaves the message for the own thread. What arrives is handed on by the own thread alone,
// while it holds nothing: handlers may send, open, close.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/transport/frame_pool.h"
#include "collective/transport/ucx/context.h"
#include "collective/transport/ucx/parts.h"
#include "collective/transport/ucx/send_window.h"
#include "collective/transport/ucx/spinner.h"
#include "collective/transport/ucx/stuck_sockets.h"
#include "collective/transport/ucx/wire.h"

namespace spccl::transport::ucx {

// A large frame that the peer holds ready; the receiver says where to, or that it is not wanted.
// Valid until it is given to Receive or Refuse, once.
struct Rendezvous {
  void* descriptor = nullptr;
};

// What a worker hands on; all are called by the worker's own thread.
class WorkerHandler {
 public:
  virtual ~WorkerHandler() = default;
  // frame: only where the message carries bytes, and then of message.frame_bytes.
  virtual void OnMessage(uint32_t worker, const Message& message, Frame frame) = 0;
  // The end of a Receive: likewise.
  virtual void OnReceived(uint32_t worker, const Message& message, Frame frame) = 0;
  // Must end in Receive or Refuse, sooner or later.
  virtual void OnRendezvous(uint32_t worker, const Message& message, Rendezvous rendezvous) = 0;
  // The end of a Receive that failed.
  virtual void OnReceiveFailed(uint32_t worker, const Message& message, absl::Status reason) = 0;
  // A part of a frame arrived for no link that is connected.
  virtual void OnStrayPart(uint32_t worker, const Message& message) = 0;
  // Something that is no message arrived; who sent it is not known.
  virtual void OnRubbish(uint32_t worker) = 0;
  virtual void OnEndpointFailed(uint32_t worker, const Key128& link, absl::Status reason) = 0;
  // Those who were told that the link's window has no room may ask again.
  virtual void OnRoom(uint32_t worker, const Key128& link) = 0;
  // The last call: refuse every rendezvous that waits.
  virtual void OnStopping(uint32_t worker) = 0;
};

// A connection of one worker to one of a peer's. Made, used and closed through the worker.
struct Endpoint {
  ucp_ep_h handle = nullptr;           // null once closed
  Key128 link;                         // whose it is
  std::shared_ptr<SendWindow> window;  // of the link
  bool eager = false;                  // see Worker::ChooseProtocol
  void* worker = nullptr;
};

class Worker {
 public:
  struct Options {
    uint32_t index = 0;
    int64_t most_spin_ns = 0;
    bool rendezvous_over_tcp = false;
    FramePool* pool = nullptr;
    WorkerHandler* handler = nullptr;
  };

  // Starts the thread. The context and the handler outlive the worker.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const Context& context, Options options);
  ~Worker();

  // Ends the thread. Sends what was taken, for at most 500 ms; then ends all connections.
  // Afterwards the other methods do nothing. Idempotent; not thread-safe.
  void Stop();

  // Where peers connect to.
  const std::string& address() const { return address_; }

  // The following are thread-safe.
  absl::StatusOr<std::shared_ptr<Endpoint>> Connect(const std::string& address, const Key128& link,
                                                    std::shared_ptr<SendWindow> window);
  // Waits for nothing. UCX's part of it comes when no connection can hold it up: see StuckSockets.
  void Close(const std::shared_ptr<Endpoint>& endpoint);
  // Never blocks for the peer. A failure is told through the handler. The frame's bytes are in the
  // endpoint's window already; they leave it when UCX has put them out.
  void Send(std::shared_ptr<Endpoint> endpoint, const Message& message, Frame frame);
  // Calls `work` on the own thread.
  void Post(std::function<void()> work);
  // Once the connection is set up (an answer has come): decides how frames travel. Over TCP alone
  // they are sent at once: a rendezvous would wait for its answer behind all that is on its way.
  // With any other transport UCX chooses by size: large ones are fetched into place.
  void ChooseProtocol(Endpoint* endpoint);
  // "tcp/eth0", or several with commas; empty while nothing was sent.
  std::string DescribeRoute(const Endpoint& endpoint);

  // For the handler, on the own thread: `frame` has room for message.frame_bytes.
  void Receive(const Message& message, Rendezvous rendezvous, Frame frame);
  void Refuse(Rendezvous rendezvous);

 private:
  struct Queued {
    Message message;
    Frame frame;
    std::shared_ptr<Endpoint> endpoint;
  };
  // A frame, or a part of one.
  struct Sending {
    MessageBytes header;
    Frame frame;
    uint64_t bytes;
    std::shared_ptr<Endpoint> endpoint;
    Worker* worker;
  };
  struct Receiving {
    Message message;
    Frame frame;
    Worker* worker;
  };
  struct Event {
    enum class Kind : uint8_t {
      kMessage,
      kRendezvous,
      kReceived,
      kReceiveFailed,
      kStray,
      kRubbish,
      kEndpointFailed,
      kRoom
    };
    Kind kind = Kind::kMessage;
    Message message = {};  // kEndpointFailed, kRoom: only its token
    Frame frame = {};
    Rendezvous rendezvous = {};
    absl::Status reason = {};
  };

  explicit Worker(Options options)
      : options_(options), parts_(options.pool), spinner_(options.most_spin_ns) {}
  absl::Status Init(const Context& context);

  static ucs_status_t OnActiveMessage(void* self, const void* header, size_t header_bytes,
                                      void* data, size_t bytes, const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* sending);
  static void OnReceived(void* request, ucs_status_t status, size_t bytes, void* receiving);
  static void OnError(void* endpoint, ucp_ep_h handle, ucs_status_t status);

  void Run();
  bool Look();   // true if there was anything
  void Sleep();  // until something may have happened
  void Deliver(Event event);
  void Kick();
  bool TakeWorkLocked();  // requires mutex_: sends what is queued; true if there was anything
  void SendLocked(Queued queued);
  void PutLocked(const std::shared_ptr<Endpoint>& endpoint, const Message& message, Frame frame,
                 uint64_t offset, uint64_t bytes);
  void TakePartLocked(const Message& message, std::span<const std::byte> bytes);
  void EndReceive(Receiving* receiving, ucs_status_t status);
  void FailLocked(const Key128& link, absl::Status reason);
  void SentLocked(const Sending& sending);
  void CloseLocked(Endpoint* endpoint);
  void EndClosedLocked(int64_t now_ns, int64_t patience_ns);
  static std::string RouteLocked(const Endpoint& endpoint);
  void Shutdown();

  const Options options_;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;  // the worker's

  // Guards all use of worker_, and what UCX's callbacks touch.
  std::mutex mutex_;
  std::vector<Event> events_;
  Parts parts_;
  uint32_t next_part_of_ = 0;
  std::set<Sending*> sending_;      // what UCX holds
  std::set<Receiving*> receiving_;  // what UCX holds
  std::set<std::shared_ptr<Endpoint>> endpoints_;
  std::vector<ucp_ep_h> closed_;  // and not ended yet
  int64_t next_end_ns_ = 0;       // when to look at them again
  std::optional<StuckSockets> stuck_;
  std::vector<void*> closing_;  // requests

  // Guards what other threads leave for the own thread. Taken under mutex_ or alone.
  std::mutex queue_mutex_;
  std::deque<Queued> queue_;
  std::vector<std::function<void()>> posts_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};

  Spinner spinner_;  // the own thread's
  std::thread thread_;
};

}  // namespace spccl::transport::ucx
