// Peers: up, in use or not, heard or not, down.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/peers/peer_net_impl.h"

namespace spccl::daemon::peers {
namespace {

constexpr int64_t kLeastTickNs = 1'000'000, kMostTickNs = 100'000'000;

std::string Seconds(int64_t ns) {
  return absl::StrFormat("%.1f s", static_cast<double>(ns) / 1e9);
}

}  // namespace

std::string PeerNet::Impl::Peer::display() const {
  return DisplayName(info.name, info.address);
}

PeerNet::Impl::PeerPtr PeerNet::Impl::NewPeer(uint64_t boot_id, const std::string& address) {
  const auto peer = std::make_shared<Peer>();
  peer->id = ++last_id_;
  peer->info.boot_id = boot_id;
  peer->info.address = address;
  peer->connect_since_ns = peer->unused_since_ns = MonotonicNanos();
  peers_[peer->id] = peer;
  by_boot_id_[boot_id] = peer;
  return peer;
}

PeerNet::Impl::PeerPtr PeerNet::Impl::FindPeer(PeerId id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second;
}

// The session becomes the peer's stream, in place of whatever there was.
void PeerNet::Impl::Adopt(const PeerPtr& peer, const SessionPtr& session) {
  for (const SessionPtr& other :
       {std::exchange(peer->dial, nullptr), std::exchange(peer->session, nullptr)}) {
    if (other == nullptr || other == session) continue;
    EndSession(other, absl::AlreadyExistsError("there is another stream"));
  }
  session->stage = Session::Stage::kUp;
  peer->session = session;
  peer->state = State::kUp;
  peer->dial_ns = 0;
  peer->unused_since_ns = MonotonicNanos();
  peer->info.name = session->theirs.name();
  peer->info.version = session->theirs.version();
  peer->info.address = session->theirs.address();
  peer->info.proof = tls_.has_value() ? (munge_ == nullptr ? "tls" : "tls+munge")
                                      : (munge_ == nullptr ? "none" : "munge");
  if (!std::exchange(peer->announced, true)) {
    Log(LogLevel::kInfo, "peers", "a peer is up",
        {{"peer", peer->display()}, {"proof", peer->info.proof}});
    calls_.push_back([this, id = peer->id, info = peer->info] { callbacks_.on_up(id, info); });
  }
  Flush(peer);
}

void PeerNet::Impl::Flush(const PeerPtr& peer) {
  peer->pending_bytes = 0;
  for (v1::PeerMessage& message : std::exchange(peer->pending, {})) {
    peer->session->stream->Write(std::move(message));  // the bounds are the same
  }
}

void PeerNet::Impl::OnUpMessage(const PeerPtr& peer, v1::PeerMessage message) {
  switch (message.kind_case()) {
    case v1::PeerMessage::kHeartbeat:
      return;  // the stream has noted that it was heard
    case v1::PeerMessage::kGoodbye:
      return OnGoodbye(peer, message.goodbye());
    case v1::PeerMessage::kStay:
      if (peer->state != State::kClosing) return;
      peer->state = State::kUp;
      peer->unused_since_ns = MonotonicNanos();
      return Flush(peer);
    case v1::PeerMessage::kHello:
    case v1::PeerMessage::kHelloAnswer:
    case v1::PeerMessage::kProof:
    case v1::PeerMessage::kWelcome:
    case v1::PeerMessage::KIND_NOT_SET:
      return Down(peer, absl::FailedPreconditionError(absl::StrCat(
                            peer->display(), " sends what the protocol does not know")));
    default:
      calls_.push_back([this, id = peer->id, message = std::move(message)]() mutable {
        callbacks_.on_message(id, std::move(message));
      });
  }
}

void PeerNet::Impl::OnGoodbye(const PeerPtr& peer, const v1::Goodbye& goodbye) {
  if (goodbye.code() != 0) {
    const auto code = static_cast<absl::StatusCode>(goodbye.code());
    return Down(peer, absl::Status(code, absl::StrCat("lost the connection to ", peer->display(),
                                                      ": ", goodbye.message())));
  }
  if (peer->state == State::kClosing) return OnClosed(peer);
  v1::PeerMessage answer;
  if (peer->references > 0 || peer->session->stream->queued() > 0) {
    answer.mutable_stay();
    peer->session->stream->Write(std::move(answer));
    return;
  }
  answer.mutable_goodbye();
  peer->session->stream->Write(std::move(answer));
  Down(peer, absl::OkStatus());
}

// Both sides have agreed to end the stream; but meanwhile it may be wanted here again.
void PeerNet::Impl::OnClosed(const PeerPtr& peer) {
  if (peer->references == 0 && peer->pending.empty()) return Down(peer, absl::OkStatus());
  EndSession(std::exchange(peer->session, nullptr), absl::OkStatus());
  peer->state = State::kConnecting;
  peer->connect_since_ns = peer->dial_ns = MonotonicNanos();
}

void PeerNet::Impl::Down(const PeerPtr& peer, const absl::Status& status) {
  if (std::exchange(peer->state, State::kDown) == State::kDown) return;
  peers_.erase(peer->id);
  const auto found = by_boot_id_.find(peer->info.boot_id);
  if (found != by_boot_id_.end() && found->second == peer) by_boot_id_.erase(found);
  for (const SessionPtr& session :
       {std::exchange(peer->dial, nullptr), std::exchange(peer->session, nullptr)}) {
    if (session != nullptr) EndSession(session, status);
  }
  peer->pending.clear();
  if (status.ok()) {
    Log(LogLevel::kInfo, "peers", "a peer is not used any more", {{"peer", peer->display()}});
  } else {
    Log(LogLevel::kWarning, "peers", "a peer is down", {{"reason", std::string(status.message())}});
  }
  calls_.push_back([this, id = peer->id, status] { callbacks_.on_down(id, status); });
}

std::optional<int64_t> PeerNet::Impl::TickIntervalNs() const {
  if (peers_.empty() && sessions_.empty()) return std::nullopt;
  return std::max(kLeastTickNs, std::min({kMostTickNs, options_.heartbeat_interval_ns / 4,
                                          options_.idle_limit_ns / 2}));
}

void PeerNet::Impl::Tick(int64_t now_ns) {
  for (const SessionPtr& session : sessions_) {
    const bool stranger = session->inbound && session->peer == nullptr;
    if (session->stage == Session::Stage::kEnded) {
      if (session->abort_ns == 0 || now_ns < session->abort_ns) continue;
      session->abort_ns = 0;
      session->stream->Abort();
    } else if (stranger && now_ns - session->started_ns > options_.connect_limit_ns) {
      Refuse(session, absl::DeadlineExceededError(
                          absl::StrCat("no proof within ", Seconds(options_.connect_limit_ns))));
    }
  }
  const std::map<PeerId, PeerPtr> peers = peers_;
  for (const auto& [id, peer] : peers) TickPeer(peer, now_ns);
}

void PeerNet::Impl::TickPeer(const PeerPtr& peer, int64_t now_ns) {
  if (peer->state == State::kConnecting) {
    if (now_ns - peer->connect_since_ns > options_.connect_limit_ns) {
      return Down(peer, absl::DeadlineExceededError(
                            absl::StrCat("connect to ", peer->display(), ": no answer within ",
                                         Seconds(options_.connect_limit_ns))));
    }
    if (peer->dial_ns != 0 && now_ns >= peer->dial_ns) Dial(peer, now_ns);
    return;
  }
  Stream& stream = *peer->session->stream;
  const int64_t silent_ns = now_ns - std::max(stream.last_heard_ns(), awake_since_ns_);
  if (silent_ns > kSilentHeartbeats * options_.heartbeat_interval_ns) {
    const SessionPtr session = peer->session;
    Down(peer, absl::DeadlineExceededError(
                   absl::StrCat("nothing heard of ", peer->display(), " for ", Seconds(silent_ns),
                                ": its daemon is frozen, or the network cut")));
    session->stream->Abort();
    return;
  }
  // Where something waits to be written, the peer hears us by that.
  if (now_ns >= peer->heartbeat_ns) {
    peer->heartbeat_ns = now_ns + options_.heartbeat_interval_ns;
    if (stream.queued() == 0) {
      v1::PeerMessage message;
      message.mutable_heartbeat()->set_sequence(++peer->heartbeats);
      stream.Write(std::move(message));
    }
  }
  if (peer->state == State::kUp && peer->references == 0 &&
      now_ns - peer->unused_since_ns > options_.idle_limit_ns) {
    peer->state = State::kClosing;
    v1::PeerMessage message;
    message.mutable_goodbye();
    stream.Write(std::move(message));
  }
}

}  // namespace spccl::daemon::peers
