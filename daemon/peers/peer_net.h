// The control connections between this daemon and others: one stream for each pair, made when first
// needed, watched by heartbeats, between daemons that have proved who they are.
//
// A peer is named by its boot id; a PeerId is one life of the connection to it. Of one PeerId the
// callbacks are: on_up once, on_message for each message in the order in which the peer sent them,
// on_down once and last; or, if it never comes up, on_down alone. They never run at the same time.
// After on_down the id is dead, whatever references it had; the next Connect makes a new one.
//
// Messages that hello, heartbeat and the like are made of (the first part of PeerMessage) stay in
// here; all others are handed on unread. How it works: docs/adr/0008-peers.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon::peers {

using PeerId = uint64_t;  // never reused, never 0

struct PeerInfo {
  uint64_t boot_id = 0;
  std::string name;     // of its node, for people
  std::string version;  // of its program
  std::string address;  // where it says that it can be dialed
  std::string proof;    // "tls", "munge", "tls+munge"; "none" over loopback
};

// Called by the net's own thread, holding nothing: they may call everything of the net but its
// destructor. They should not wait: while one runs, nobody else hears or is heard. A peer may
// connect before Create has returned, so they may be called before the caller has its PeerNet.
struct PeerCallbacks {
  std::function<void(PeerId, const PeerInfo&)> on_up;
  std::function<void(PeerId, v1::PeerMessage)> on_message;
  // OK: nobody used it on either side for `idle_limit_ns`. Else the status names the peer's host
  // and what happened: Unavailable (refused, killed, stopped, cut off), DeadlineExceeded (frozen,
  // or no answer in time), Unauthenticated (its proof, or ours), FailedPrecondition (it speaks
  // another protocol, or has been started anew), ResourceExhausted (it does not take what is sent).
  std::function<void(PeerId, const absl::Status&)> on_down;
};

struct TlsFiles {
  std::string ca, certificate, key;  // paths of PEM files; all empty: no TLS
  bool used() const { return !certificate.empty(); }
};

// A peer that is silent for so many heartbeats' time is down: 2.5 s by default, so that 3 s after
// whatever has happened to it, everybody knows.
inline constexpr int kSilentHeartbeats = 5;

struct PeerNetOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0: any. Loopback only, if without proof
  // What others are told to dial, HOST or HOST:PORT; empty: as `listen`, or the machine's name
  // where that is a wildcard.
  std::string advertise;
  TlsFiles tls;
  bool munge = false;
  std::string munge_socket;  // of munged; empty: where libmunge looks
  uint64_t boot_id = 0;      // not 0
  std::string name;          // of this node, for people; empty: the machine's
  std::string version;       // of this program
  // Must be the same on both sides: also what chooses plans and slices, which nodes do each by
  // itself.
  uint32_t protocol = 5;
  int64_t heartbeat_interval_ns = 500'000'000;
  int64_t connect_limit_ns = 5'000'000'000;  // from Connect to on_up, and for a stranger's hello
  int64_t idle_limit_ns = 60'000'000'000;    // a stream that nobody uses ends
};

// Thread-safe.
class PeerNet {
 public:
  // Listens and serves. InvalidArgument: an address or a certificate is wrong (its file is named).
  // FailedPrecondition: the address is not a loopback one and there is neither TLS nor MUNGE.
  // Unimplemented: MUNGE in a build without it.
  static absl::StatusOr<std::unique_ptr<PeerNet>> Create(PeerNetOptions options,
                                                         PeerCallbacks callbacks);
  // Tells the peers, and ends within about a second. No callback runs after it.
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  // HOST:PORT, for others to dial.
  const std::string& address() const;
  // Of this node, for people.
  const std::string& name() const;

  // The peer with this boot id, one reference added; dialed at `address` if there is no connection.
  // Never waits: what goes wrong then comes by on_down. InvalidArgument: no address, or the boot id
  // is our own or 0. FailedPrecondition: not a loopback address, and there is neither TLS nor
  // MUNGE.
  absl::StatusOr<PeerId> Connect(const std::string& address, uint64_t boot_id);
  // A further reference to a peer that has not gone down; NotFound if it has.
  absl::Status AddReference(PeerId peer);
  // One reference less. Once neither side has any, the stream is kept for the idle limit. A peer
  // that has gone down is ignored.
  void Release(PeerId peer);

  // Ends a connection, whoever uses it: on_down follows, with the status, which the peer is told.
  // One that has gone down is ignored.
  void Drop(PeerId peer, absl::Status status);

  // Takes the message for sending, in order, also before on_up. NotFound: the peer has gone down.
  // A peer that does not take what it is sent goes down (4,096 messages or 64 MiB).
  absl::Status Send(PeerId peer, v1::PeerMessage message);

  // The connection to the daemon with this boot id, up or being made.
  std::optional<PeerId> Find(uint64_t boot_id) const;

 private:
  class Impl;
  explicit PeerNet(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

}  // namespace spccl::daemon::peers
