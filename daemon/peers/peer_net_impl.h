// How PeerNet works. Internal to daemon/peers.
//
// All state is under one mutex. What gRPC's threads report is queued as events; the net's own
// thread takes them one by one under the mutex, then looks at the clock, then calls back with the
// mutex free. So nothing that happens to a connection ever runs beside something else that does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/peers/acceptor.h"
#include "daemon/peers/address.h"
#include "daemon/peers/helper_thread.h"
#include "daemon/peers/munge.h"
#include "daemon/peers/peer_net.h"
#include "daemon/peers/stream.h"
#include "daemon/peers/tls.h"

namespace spccl::daemon::peers {

class PeerNet::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(PeerNetOptions options, PeerCallbacks callbacks)
      : options_(std::move(options)), callbacks_(std::move(callbacks)) {}

  absl::Status Start();
  void Stop();

  const std::string& address() const { return address_; }
  const std::string& name() const { return options_.name; }
  absl::StatusOr<PeerId> Connect(const std::string& address, uint64_t boot_id);
  absl::Status AddReference(PeerId id);
  void Release(PeerId id);
  void Drop(PeerId id, absl::Status status);
  absl::Status Send(PeerId id, v1::PeerMessage message);
  std::optional<PeerId> Find(uint64_t boot_id) const;

 private:
  struct Peer;
  // One stream, from its first message to its end.
  struct Session {
    // What comes next. kBusy: our own or the peer's proof is being made or checked.
    enum class Stage { kHello, kHelloAnswer, kProof, kWelcome, kBusy, kUp, kEnded };
    bool inbound = false;
    Stage stage = Stage::kHello;
    bool proof_sent = false;         // by us as the dialer
    std::shared_ptr<Stream> stream;  // null once it has ended
    std::shared_ptr<Peer> peer;      // of a dial; of an accepted stream once it is up
    v1::Hello own, theirs;
    int64_t started_ns = 0;
    int64_t abort_ns = 0;  // kEnded: when it is ended by force; 0: was

    const v1::Hello& dialer() const { return inbound ? theirs : own; }
    const v1::Hello& acceptor() const { return inbound ? own : theirs; }
  };
  using SessionPtr = std::shared_ptr<Session>;

  // kClosing: nobody uses it here, and we have offered the peer to end the stream.
  enum class State { kConnecting, kUp, kClosing, kDown };
  struct Peer {
    PeerId id = 0;
    State state = State::kConnecting;
    bool announced = false;  // on_up was called
    uint32_t references = 0;
    PeerInfo info;
    SessionPtr session;                   // kUp and kClosing
    SessionPtr dial;                      // kConnecting: ours, if one is under way
    std::deque<v1::PeerMessage> pending;  // what was sent while there was no stream to write to
    size_t pending_bytes = 0;
    int64_t connect_since_ns = 0;
    int64_t dial_ns = 0;  // when to dial next; 0: not
    int64_t unused_since_ns = 0;
    int64_t heartbeat_ns = 0;  // when the next is due
    uint64_t heartbeats = 0;

    std::string display() const;
  };
  using PeerPtr = std::shared_ptr<Peer>;

  // Starting and stopping.
  absl::Status LoadCredentials();
  absl::Status Listen();
  void Run();
  void Post(std::function<void()> event);

  // Sessions. All below: mutex_ held, by the net's thread (peer_net_sessions.cc).
  StreamHandler Accept(const std::shared_ptr<Stream>& stream);
  StreamHandler HandlerOf(const SessionPtr& session);
  void Dial(const PeerPtr& peer, int64_t now_ns);
  void OnMessage(const SessionPtr& session, v1::PeerMessage message);
  void OnHello(const SessionPtr& session, const v1::Hello& hello);
  void OnHelloAnswer(const SessionPtr& session, const v1::HelloAnswer& answer);
  void OnProof(const SessionPtr& session, const v1::Proof& proof);
  absl::Status CheckCertificate(const Session& session) const;
  void MakeProof(const SessionPtr& session, std::function<void(std::string)> next);
  void CheckProof(const SessionPtr& session, const std::string& credential,
                  std::function<void()> next);
  void AdmitAccepted(const SessionPtr& session);
  void Refuse(const SessionPtr& session, const absl::Status& status);
  void EndSession(const SessionPtr& session, const absl::Status& status);
  void OnEnd(const SessionPtr& session, const absl::Status& status);
  void OnDialFailed(const PeerPtr& peer, const absl::Status& status);
  void DialFailed(const PeerPtr& peer, const absl::Status& status);

  // Peers (peer_net_peers.cc).
  PeerPtr NewPeer(uint64_t boot_id, const std::string& address);
  PeerPtr FindPeer(PeerId id) const;
  void Adopt(const PeerPtr& peer, const SessionPtr& session);
  void Flush(const PeerPtr& peer);
  void OnUpMessage(const PeerPtr& peer, v1::PeerMessage message);
  void OnGoodbye(const PeerPtr& peer, const v1::Goodbye& goodbye);
  void OnClosed(const PeerPtr& peer);
  void Down(const PeerPtr& peer, const absl::Status& status);
  void Tick(int64_t now_ns);
  void TickPeer(const PeerPtr& peer, int64_t now_ns);
  std::optional<int64_t> TickIntervalNs() const;

  PeerNetOptions options_;
  const PeerCallbacks callbacks_;
  Address listen_;
  std::string address_;
  std::optional<TlsIdentity> tls_;
  std::unique_ptr<Munge> munge_;  // used by helper_ only
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials_;
  std::shared_ptr<grpc::ServerCredentials> server_credentials_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> events_;
  std::vector<std::function<void()>> calls_;  // that the net's thread makes next
  bool stopping_ = false;                     // nothing new begins, nobody is called any more
  bool stopped_ = false;                      // the thread ends
  PeerId last_id_ = 0;
  std::map<PeerId, PeerPtr> peers_;
  std::map<uint64_t, PeerPtr> by_boot_id_;
  std::set<SessionPtr> sessions_;
  int64_t awake_since_ns_ = 0;  // when this process last found that it had slept itself

  std::unique_ptr<AcceptingService> service_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<HelperThread> helper_;
  std::thread thread_;
};

}  // namespace spccl::daemon::peers
