// The beginning and the end of streams: who is there, which of two streams stands, why one ended.
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/peers/hello.h"
#include "daemon/peers/linear_timeouts.h"
#include "daemon/peers/peer_net_impl.h"

namespace spccl::daemon::peers {
namespace {

constexpr int64_t kEndGraceNs = 1'000'000'000;  // from our ending a stream to its end by force
// After a dial that the other side's has made void, or that found no way there.
constexpr int64_t kRetryNs = 300'000'000;
constexpr size_t kMaxStrangers = 256;  // accepted streams that are not up

// The network has no way there now. That may be the last word of a cut that has just ended: the
// kernel still answers for an address that it could not resolve. gRPC tells the errno in words
// only.
bool NoWayThere(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return false;
  for (const int error : {EHOSTUNREACH, ENETUNREACH}) {
    if (absl::StrContains(status.message(), std::strerror(error))) return true;
  }
  return false;
}

v1::PeerMessage GoodbyeOf(const absl::Status& status) {
  v1::PeerMessage message;
  message.mutable_goodbye()->set_code(static_cast<uint32_t>(status.code()));
  message.mutable_goodbye()->set_message(std::string(status.message()));
  return message;
}

}  // namespace

StreamHandler PeerNet::Impl::HandlerOf(const SessionPtr& session) {
  return {.on_message =
              [self = shared_from_this(), session](v1::PeerMessage message) {
                self->Post([impl = self.get(), session, message = std::move(message)]() mutable {
                  impl->OnMessage(session, std::move(message));
                });
              },
          .on_end =
              [self = shared_from_this(), session](absl::Status status,
                                                   std::shared_ptr<Stream> stream) {
                // The event holds the last reference: session and peers drop theirs in OnEnd.
                self->Post([impl = self.get(), session, status = std::move(status),
                            stream = std::move(stream)] { impl->OnEnd(session, status); });
              }};
}

// By gRPC's threads.
StreamHandler PeerNet::Impl::Accept(const std::shared_ptr<Stream>& stream) {
  const auto session = std::make_shared<Session>();
  session->inbound = true;
  session->stream = stream;
  session->started_ns = MonotonicNanos();
  const std::lock_guard lock(mutex_);
  size_t strangers = 0;
  for (const SessionPtr& other : sessions_) strangers += other->inbound && other->peer == nullptr;
  sessions_.insert(session);
  if (stopping_ || strangers >= kMaxStrangers) {
    const absl::Status status =
        stopping_
            ? absl::UnavailableError(absl::StrCat(options_.name, " is stopping"))
            : absl::ResourceExhaustedError(absl::StrCat("too many connect to ", options_.name));
    events_.push_back([this, session, status] { EndSession(session, status); });
    changed_.notify_all();
  }
  return HandlerOf(session);
}

void PeerNet::Impl::Dial(const PeerPtr& peer, int64_t now_ns) {
  peer->dial_ns = 0;
  if (tls_.has_value()) {
    if (const absl::Status dates = tls_->CheckDates(); !dates.ok()) return Down(peer, dates);
  }
  const auto session = std::make_shared<Session>();
  session->stage = Session::Stage::kHelloAnswer;
  session->peer = peer;
  session->started_ns = now_ns;
  session->own = MakeHello(options_, address_);
  session->own.set_expected(peer->info.boot_id);
  peer->dial = session;
  sessions_.insert(session);
  session->stream = DialStream(absl::StrCat("dns:///", peer->info.address), channel_credentials_,
                               HandlerOf(session));
  v1::PeerMessage message;
  *message.mutable_hello() = session->own;
  session->stream->Write(std::move(message));
}

void PeerNet::Impl::OnMessage(const SessionPtr& session, v1::PeerMessage message) {
  using Stage = Session::Stage;
  using Kind = v1::PeerMessage::KindCase;
  const Kind kind = message.kind_case();
  if (session->stage == Stage::kUp) {
    OnUpMessage(session->peer, std::move(message));
  } else if (session->stage == Stage::kHello && kind == Kind::kHello) {
    OnHello(session, message.hello());
  } else if (session->stage == Stage::kHelloAnswer && kind == Kind::kHelloAnswer) {
    OnHelloAnswer(session, message.hello_answer());
  } else if (session->stage == Stage::kProof && kind == Kind::kProof) {
    OnProof(session, message.proof());
  } else if (session->stage == Stage::kWelcome && kind == Kind::kWelcome) {
    Adopt(session->peer, session);
  } else if (session->stage != Stage::kEnded) {
    if (session->inbound && kind == Kind::kGoodbye) {
      const bool news =
          message.goodbye().code() != static_cast<uint32_t>(absl::StatusCode::kAlreadyExists);
      Log(news ? LogLevel::kWarning : LogLevel::kDebug, "peers", "a peer has given up",
          {{"from", session->stream->remote()},
           {"reason", message.goodbye().message().substr(0, 2 * kMaxTextBytes)}});
      EndSession(session, absl::OkStatus());
    } else {
      Refuse(session,
             absl::InvalidArgumentError("found another message than the protocol expects"));
    }
  }
  session->stream->Resume();
}

void PeerNet::Impl::OnHello(const SessionPtr& session, const v1::Hello& hello) {
  session->own = MakeHello(options_, address_);
  session->theirs = hello;
  absl::Status status = CheckHello(session->own, hello);
  if (status.ok()) status = CheckCertificate(*session);
  if (!status.ok()) return Refuse(session, status);
  session->stage = Session::Stage::kBusy;
  MakeProof(session, [session](std::string credential) {
    v1::PeerMessage message;
    *message.mutable_hello_answer()->mutable_hello() = session->own;
    message.mutable_hello_answer()->set_credential(std::move(credential));
    session->stage = Session::Stage::kProof;
    session->stream->Write(std::move(message));
  });
}

// A certificate proves the names in it: nobody may take another's address.
absl::Status PeerNet::Impl::CheckCertificate(const Session& session) const {
  if (!tls_.has_value()) return absl::OkStatus();
  SPCCL_ASSIGN_OR_RETURN(const Address address, ParseAddress(session.theirs.address()));
  const std::vector<std::string>& names = session.stream->certificate_names();
  if (NamesHost(names, address.host)) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate of ", session.theirs.name(), " is for ", absl::StrJoin(names, ", "),
      " and not for ", address.host, ", the address that it says it has"));
}

void PeerNet::Impl::OnHelloAnswer(const SessionPtr& session, const v1::HelloAnswer& answer) {
  session->theirs = answer.hello();
  if (const auto dialed = ParseAddress(session->peer->info.address); dialed.ok()) {
    UseLinearTimeouts(Sockets::kDialed, dialed->port);
  }
  const absl::Status status = CheckHello(session->own, session->theirs);
  if (!status.ok()) return Refuse(session, status);
  session->stage = Session::Stage::kBusy;
  CheckProof(session, answer.credential(), [this, session] {
    MakeProof(session, [session](std::string credential) {
      v1::PeerMessage message;
      message.mutable_proof()->set_credential(std::move(credential));
      session->stage = Session::Stage::kWelcome;
      session->proof_sent = true;
      session->stream->Write(std::move(message));
    });
  });
}

void PeerNet::Impl::OnProof(const SessionPtr& session, const v1::Proof& proof) {
  session->stage = Session::Stage::kBusy;
  CheckProof(session, proof.credential(), [this, session] { AdmitAccepted(session); });
}

// Calls `next` with our credential, unless the session ends before.
void PeerNet::Impl::MakeProof(const SessionPtr& session, std::function<void(std::string)> next) {
  if (munge_ == nullptr) return next("");
  const Role role = session->inbound ? Role::kAcceptor : Role::kDialer;
  const std::string payload = ProofPayload(role, session->dialer(), session->acceptor());
  helper_->Post([this, session, payload, next = std::move(next)] {
    Post([this, session, next, credential = munge_->Encode(payload)] {
      if (session->stage == Session::Stage::kEnded) return;
      if (!credential.ok()) return Refuse(session, credential.status());
      next(*credential);
    });
  });
}

// Calls `next` once the peer's credential is found good, unless the session ends before.
void PeerNet::Impl::CheckProof(const SessionPtr& session, const std::string& credential,
                               std::function<void()> next) {
  if (munge_ == nullptr) return next();
  const Role role = session->inbound ? Role::kDialer : Role::kAcceptor;
  const std::string payload = ProofPayload(role, session->dialer(), session->acceptor());
  helper_->Post([this, session, credential, payload, next = std::move(next)] {
    Post([this, session, next, status = munge_->Verify(credential, payload)] {
      if (session->stage == Session::Stage::kEnded) return;
      if (!status.ok()) return Refuse(session, status);
      next();
    });
  });
}

// A proven dialer. Of two daemons the one with the smaller boot id decides which stream stands: as
// the dialer by sending its proof, as the acceptor here. The other follows.
void PeerNet::Impl::AdmitAccepted(const SessionPtr& session) {
  acceptor_->Welcome(session->stream->remote());
  const bool we_decide = options_.boot_id < session->theirs.boot_id();
  const auto found = by_boot_id_.find(session->theirs.boot_id());
  PeerPtr peer = found == by_boot_id_.end() ? nullptr : found->second;
  if (peer != nullptr && we_decide) {
    const bool decided =
        peer->state != State::kConnecting || (peer->dial != nullptr && peer->dial->proof_sent);
    if (decided) {
      return EndSession(session, absl::AlreadyExistsError("there is a stream already"));
    }
  } else if (peer != nullptr && peer->state == State::kUp) {
    Down(peer, absl::UnavailableError(
                   absl::StrCat(peer->display(), " has lost its connection, and connects anew")));
    peer = nullptr;
  }
  if (peer == nullptr) peer = NewPeer(session->theirs.boot_id(), session->theirs.address());
  session->peer = peer;
  session->stream->Write([] {
    v1::PeerMessage message;
    message.mutable_welcome();
    return message;
  }());
  Adopt(peer, session);
}

// Ends a session that is not up, and says why here too.
void PeerNet::Impl::Refuse(const SessionPtr& session, const absl::Status& status) {
  EndSession(session, status);
  if (!session->inbound) {
    if (session->peer->dial == session) {
      const PeerPtr peer = session->peer;
      peer->dial = nullptr;
      DialFailed(peer, status);
    }
    return;
  }
  Log(LogLevel::kWarning, "peers", "a peer is refused",
      {{"from", session->stream->remote()},
       {"name", session->theirs.name().substr(0, kMaxTextBytes)},
       {"reason", std::string(status.message())}});
}

void PeerNet::Impl::EndSession(const SessionPtr& session, const absl::Status& status) {
  if (session->stage == Session::Stage::kEnded) return;
  session->stage = Session::Stage::kEnded;
  session->abort_ns = MonotonicNanos() + kEndGraceNs;
  if (!session->inbound && !status.ok()) session->stream->Write(GoodbyeOf(status));
  session->stream->End(status);
}

void PeerNet::Impl::OnEnd(const SessionPtr& session, const absl::Status& status) {
  session->stream = nullptr;
  sessions_.erase(session);
  if (sessions_.empty()) changed_.notify_all();
  const PeerPtr peer = std::exchange(session->peer, nullptr);
  const bool ours = std::exchange(session->stage, Session::Stage::kEnded) == Session::Stage::kEnded;
  if (peer == nullptr || ours) return;
  if (peer->dial == session) {
    peer->dial = nullptr;
    if (peer->state == State::kConnecting) OnDialFailed(peer, status);
  } else if (peer->session == session) {
    if (peer->state == State::kClosing && status.ok()) return OnClosed(peer);
    const absl::string_view why =
        status.ok() ? "its daemon was killed, or the network cut" : status.message();
    Down(peer, absl::UnavailableError(
                   absl::StrCat("lost the connection to ", peer->display(), ": ", why)));
  }
}

void PeerNet::Impl::OnDialFailed(const PeerPtr& peer, const absl::Status& status) {
  if (absl::IsAlreadyExists(status)) {
    // The peer's own stream is about to come; or it has not noticed yet that an old one is dead.
    peer->dial_ns = MonotonicNanos() + kRetryNs;
    return;
  }
  if (NoWayThere(status) &&
      MonotonicNanos() + kRetryNs - peer->connect_since_ns < options_.connect_limit_ns) {
    peer->dial_ns = MonotonicNanos() + kRetryNs;
    return;
  }
  if (!tls_.has_value() || !absl::IsUnavailable(status)) return DialFailed(peer, status);
  // gRPC says little about why TLS did not come about.
  const absl::StatusOr<Address> address = ParseAddress(peer->info.address);
  helper_->Post([this, peer, status, address] {
    const absl::Status found = tls_->Probe(*address);
    Post([this, peer, why = found.ok() ? status : found] { DialFailed(peer, why); });
  });
}

void PeerNet::Impl::DialFailed(const PeerPtr& peer, const absl::Status& status) {
  if (peer->state != State::kConnecting || peer->dial != nullptr) return;
  Down(peer, Annotate(status, absl::StrCat("connect to ", peer->display())));
}

}  // namespace spccl::daemon::peers
