// A scripted daemon for tests of the client: in this process, on a thread of its own, with a socket
// in a folder of its own that SPCCL_RUNTIME_DIR then names. It keeps the protocol until told to
// break it.
//
// Memory of GPUs is the fake CUDA's, where the CPU finds it too; as the daemon's streams it waits
// for an operation's `ready` and writes `done`.
//
// Ranks meet and operations match as in the real one; data is moved only for communicators of one
// rank, where every collective is a copy.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/unique_fd.h"
#include "proto/shm/result.h"
#include "proto/shm/session.h"
#include "proto/shm/slot.h"
#include "proto/shm/socket.h"
#include "tests/support/temp_folder.h"

namespace spccl::testing {

// Thread-safe.
class FakeDaemon {
 public:
  FakeDaemon();
  ~FakeDaemon();

  // Whether it reaches ordinary memory; asked at the start of each session.
  void SetAttach(bool can_attach);
  // Whether operations are kept instead of done; releasing does those that were kept.
  void HoldOperations(bool hold);
  // Whether requests of a type get no reply; releasing sends the replies that were kept.
  void HoldReplies(shm::RequestType type, bool hold);
  // Every later request of the type is refused.
  void Refuse(shm::RequestType type, shm::Result result, const std::string& message);
  // The shared-memory version that every later session's segment says; the real one at first.
  void SetSegmentVersion(uint32_t version);
  // The minor version of the protocol that every later session speaks; the real one at first.
  void SetMinor(uint16_t minor);
  // Every later operation ends with this.
  void FailOperations(shm::Result result, const std::string& message);

  // From now on it looks for operations without being told, and says so in its rings.
  void StayAwake();
  // How often clients have rung.
  uint64_t rings();

  // Every later request for relays gets memory for them; operations do not pass through it.
  void OfferRelays();

  // Later completions of operations on GPUs come without their `done`, as if it died in between.
  void OmitDone();

  // Gone without a word, as after SIGKILL; and back, with a new socket.
  void Kill();
  void Restart();
  // As just before it goes: requests find nobody who reads, and nothing tells of it yet.
  void GoDeaf();

  // To every session.
  void Send(const shm::Reply& notice);
  void SendRubbish(size_t bytes);
  void CorruptCompletionTail();
  void CorruptSubmissionHead();
  void CompleteTicket(uint64_t ticket);

  // What was seen so far; Await blocks until there are so many, false after 10 s.
  std::vector<shm::Submission> submissions();
  bool AwaitSubmissions(size_t count);
  size_t Requests(shm::RequestType type);
  bool AwaitRequests(shm::RequestType type, size_t count);
  size_t sessions();  // opened since the start
  bool AwaitSessionsOpen(size_t count);

 private:
  struct Session {
    UniqueFd socket, doorbell;
    SharedMapping segment;
    std::unique_ptr<shm::Consumer<shm::Submission>> submissions;
    std::unique_ptr<shm::Producer<shm::Completion>> completions;
    std::map<uint64_t, SharedMapping> buffers;
    std::map<uint64_t, uint64_t> gpu_buffers;  // id -> address, which is this process's
    SharedMapping order;
    std::map<uint32_t, std::pair<std::string, uint32_t>> comms;  // id -> unique id, ranks
  };
  using SessionPtr = std::shared_ptr<Session>;
  struct Arrival {
    SessionPtr session;
    uint64_t request_id;
  };
  struct Waiting {
    SessionPtr session;
    shm::Submission submission;
  };

  void Listen();
  void Serve();
  void Wake();
  void Accept();
  void OnReadable(const SessionPtr& session);
  void Handle(const SessionPtr& session, const shm::Request& request, shm::Packet* packet);
  void SayHello(const SessionPtr& session, const shm::Request& request);
  void JoinRank(const SessionPtr& session, const shm::Request& request);
  SharedMapping GiveMemory(const SessionPtr& session, const shm::Request& request, size_t bytes);
  void Answer(const SessionPtr& session, uint64_t request_id, uint64_t value,
              shm::Result result = shm::Result::kSuccess, const std::string& message = "");
  bool TakeRings(const SessionPtr& session);
  void Collect(const SessionPtr& session);
  void Match(const SessionPtr& session, const shm::Submission& submission);
  void Complete(const SessionPtr& session, const shm::Submission& submission, shm::Result result,
                const std::string& message);
  void EndComm(const SessionPtr& session, uint32_t comm_id);
  static void AwaitReady(const SessionPtr& session, const shm::Submission& submission);
  void Push(const SessionPtr& session, const shm::Completion& completion);
  bool Await(const std::function<bool()>& condition);

  const testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  UniqueFd listener_, wake_;
  bool stop_ = false;
  bool omits_done_ = false;
  bool offers_relays_ = false;
  bool can_attach_ = true;
  bool awake_ = false;
  uint64_t rings_ = 0;
  uint32_t segment_version_ = shm::kShmVersion;
  uint16_t minor_ = shm::kSessionMinor;
  bool hold_operations_ = false;
  std::pair<shm::Result, std::string> operation_result_{shm::Result::kSuccess, ""};
  std::map<shm::RequestType, std::pair<shm::Result, std::string>> refused_;
  std::map<shm::RequestType, std::vector<std::function<void()>>> held_replies_;
  std::vector<SessionPtr> sessions_, deaf_;
  size_t opened_ = 0;
  uint64_t next_id_ = 1;
  std::map<std::string, std::vector<Arrival>> arrivals_;
  std::set<std::string> ended_;  // communicators, by unique id
  std::map<std::pair<std::string, uint64_t>, std::vector<Waiting>> matching_;
  std::vector<Waiting> held_;
  std::vector<shm::Submission> seen_submissions_;
  std::map<shm::RequestType, size_t> seen_requests_;
};

// A reply of the given type, as the daemon sends it unasked.
shm::Reply Notice(shm::ReplyType type, uint64_t value, shm::Result result,
                  const std::string& message);

}  // namespace spccl::testing
