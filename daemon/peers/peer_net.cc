#include "daemon/peers/peer_net.h"

#include <unistd.h>

#include <chrono>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/peers/linear_timeouts.h"
#include "daemon/peers/peer_net_impl.h"
#include "grpc/support/log.h"
#include "grpcpp/ext/health_check_service_server_builder_option.h"

namespace spccl::daemon::peers {
namespace {

constexpr int kMaxMessageBytes = 16 * 1024 * 1024;
constexpr int kMaxStreamsPerConnection = 4;
constexpr auto kGrace = std::chrono::milliseconds(400);  // for the last words
constexpr auto kEndLimit = std::chrono::seconds(5);      // after which gRPC is broken
// A thread that runs this much late has not run at all: the process or the machine was stopped.
constexpr int64_t kSleptNs = 1'000'000'000;

std::string MachineName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// The health and reflection services of the control socket are the process's defaults: not here.
class NoPlugins final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

// What gRPC has to say, in the daemon's own log: why it refused a certificate, for one.
void LogOfGrpc(gpr_log_func_args* line) {
  const bool error = line->severity == GPR_LOG_SEVERITY_ERROR;
  Log(error ? LogLevel::kWarning : LogLevel::kDebug, "grpc", line->message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerNet>> PeerNet::Create(PeerNetOptions options,
                                                         PeerCallbacks callbacks) {
  gpr_set_log_function(LogOfGrpc);
  if (options.boot_id == 0) return absl::InvalidArgumentError("a boot id of 0");
  auto impl = std::make_shared<Impl>(std::move(options), std::move(callbacks));
  absl::Status started;
  try {
    started = impl->Start();
  } catch (const std::system_error& error) {
    started = absl::ResourceExhaustedError(absl::StrCat("no thread for peers: ", error.what()));
  }
  if (!started.ok()) {
    impl->Stop();
    return started;
  }
  return std::unique_ptr<PeerNet>(new PeerNet(std::move(impl)));
}

PeerNet::PeerNet(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

PeerNet::~PeerNet() {
  impl_->Stop();
}

const std::string& PeerNet::address() const {
  return impl_->address();
}
const std::string& PeerNet::name() const {
  return impl_->name();
}
absl::StatusOr<PeerId> PeerNet::Connect(const std::string& address, uint64_t boot_id) {
  return impl_->Connect(address, boot_id);
}
absl::Status PeerNet::AddReference(PeerId peer) {
  return impl_->AddReference(peer);
}
void PeerNet::Release(PeerId peer) {
  impl_->Release(peer);
}
void PeerNet::Drop(PeerId peer, absl::Status status) {
  impl_->Drop(peer, std::move(status));
}
absl::Status PeerNet::Send(PeerId peer, v1::PeerMessage message) {
  return impl_->Send(peer, std::move(message));
}
std::optional<PeerId> PeerNet::Find(uint64_t boot_id) const {
  return impl_->Find(boot_id);
}

absl::Status PeerNet::Impl::Start() {
  if (options_.name.empty()) options_.name = MachineName();
  absl::StatusOr<Address> listen = ParseAddress(options_.listen);
  if (!listen.ok()) return Annotate(listen.status(), "peers.listen");
  listen_ = *std::move(listen);
  if (!options_.tls.used() && !options_.munge && !IsLoopback(listen_.host)) {
    return absl::FailedPreconditionError(
        absl::StrCat("peers.listen: found ", options_.listen,
                     ", expected a loopback address: without TLS or MUNGE anybody could connect"));
  }
  SPCCL_RETURN_IF_ERROR(LoadCredentials());
  helper_ = std::make_unique<HelperThread>();
  awake_since_ns_ = MonotonicNanos();
  thread_ = std::thread([this] { Run(); });
  return Listen();
}

absl::Status PeerNet::Impl::LoadCredentials() {
  if (options_.munge) {
    SPCCL_ASSIGN_OR_RETURN(munge_, Munge::Create(options_.munge_socket));
  }
  if (!options_.tls.used()) {
    channel_credentials_ = grpc::InsecureChannelCredentials();
    server_credentials_ = grpc::InsecureServerCredentials();
    return absl::OkStatus();
  }
  SPCCL_ASSIGN_OR_RETURN(tls_, TlsIdentity::Load(options_.tls));
  grpc::SslServerCredentialsOptions server(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  server.pem_root_certs = tls_->ca();
  server.pem_key_cert_pairs.push_back(
      {.private_key = tls_->key(), .cert_chain = tls_->certificate()});
  server_credentials_ = grpc::SslServerCredentials(server);
  channel_credentials_ = grpc::SslCredentials({.pem_root_certs = tls_->ca(),
                                               .pem_private_key = tls_->key(),
                                               .pem_cert_chain = tls_->certificate()});
  return absl::OkStatus();
}

absl::Status PeerNet::Impl::Listen() {
  service_ = std::make_unique<AcceptingService>(
      [this](const std::shared_ptr<Stream>& stream) { return Accept(stream); });
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<NoPlugins>());
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  builder.RegisterService(service_.get());
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // Of those who have said hello, were refused, and stay.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             1 + static_cast<int>(options_.connect_limit_ns / 1'000'000));
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor =
      Acceptor::Listen(listen_, options_.connect_limit_ns);
  if (!acceptor.ok()) {
    return Annotate(acceptor.status(),
                    absl::StrCat("peers.listen: cannot listen on ", listen_.text()));
  }
  acceptor_ = *std::move(acceptor);
  const uint16_t port = acceptor_->port();
  UseLinearTimeouts(Sockets::kListener, port);
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> connections =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          server_credentials_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("peers.listen: gRPC did not start");
  acceptor_->Start([connections](UniqueFd socket) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket.Release();
    connections->HandleNewConnection(&connection);
  });
  Address address = listen_;
  address.port = port;
  const std::string listening = address.text();
  if (!options_.advertise.empty()) {
    absl::StatusOr<Address> wanted = ParseAddress(options_.advertise);
    if (!wanted.ok()) {
      wanted = ParseAddress(absl::StrCat(options_.advertise, ":", port));
      if (!wanted.ok()) return Annotate(wanted.status(), "peers.advertise");
    }
    address = *std::move(wanted);
  } else if (IsWildcard(address.host)) {
    address.host = MachineName();
  }
  address_ = address.text();
  Log(LogLevel::kInfo, "peers", "listening for peers",
      {{"address", listening}, {"advertised", address_}});
  return absl::OkStatus();
}

void PeerNet::Impl::Stop() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    const absl::Status reason =
        absl::UnavailableError(absl::StrCat("the daemon on ", options_.name, " has stopped"));
    for (const SessionPtr& session : sessions_) EndSession(session, reason);
    changed_.notify_all();
    changed_.wait_for(lock, kGrace, [this] { return sessions_.empty(); });
    for (const SessionPtr& session : sessions_) session->stream->Abort();
  }
  if (acceptor_ != nullptr) acceptor_->Stop();  // gRPC would not close what it is given then
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kGrace);
  {
    std::unique_lock lock(mutex_);
    const bool ended = changed_.wait_for(lock, kEndLimit, [this] { return sessions_.empty(); });
    if (!ended) Log(LogLevel::kError, "peers", "a stream does not end");
    stopped_ = true;
    changed_.notify_all();
  }
  if (server_ != nullptr) server_->Wait();
  if (thread_.joinable()) thread_.join();
  helper_.reset();
  // Here and not where the last stream lets go of us, which may be on a thread of gRPC's own.
  server_.reset();
  service_.reset();
  std::deque<std::function<void()>> events;
  const std::lock_guard lock(mutex_);
  events.swap(events_);  // destroyed after the lock
  for (const auto& [id, peer] : peers_) peer->session = peer->dial = nullptr;
  peers_.clear();
  by_boot_id_.clear();
}

void PeerNet::Impl::Post(std::function<void()> event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

void PeerNet::Impl::Run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const auto due = [this] { return stopped_ || !events_.empty(); };
    const std::optional<int64_t> interval_ns = TickIntervalNs();
    const int64_t before_ns = MonotonicNanos();
    if (interval_ns.has_value()) {
      changed_.wait_for(lock, std::chrono::nanoseconds(*interval_ns), due);
      const int64_t now_ns = MonotonicNanos();
      if (now_ns - before_ns > *interval_ns + kSleptNs) awake_since_ns_ = now_ns;
    } else {
      changed_.wait(lock, due);
    }
    std::deque<std::function<void()>> events;
    events.swap(events_);
    for (const std::function<void()>& event : events) event();
    if (!stopping_) Tick(MonotonicNanos());
    std::vector<std::function<void()>> calls;
    calls.swap(calls_);
    const bool call_back = !stopping_;
    lock.unlock();
    // A stream that has ended goes with its event: that may wait for threads of gRPC's, which may
    // wait for the mutex.
    events.clear();
    for (size_t i = 0; call_back && i < calls.size(); ++i) calls[i]();
    calls.clear();
    lock.lock();
  }
}

absl::StatusOr<PeerId> PeerNet::Impl::Connect(const std::string& address, uint64_t boot_id) {
  absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return Annotate(parsed.status(), "a peer's address");
  if (boot_id == 0 || boot_id == options_.boot_id) {
    return absl::InvalidArgumentError(absl::StrCat("the boot id ", boot_id, " is no peer's"));
  }
  if (!tls_.has_value() && munge_ == nullptr && !IsLoopback(parsed->host)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the daemon on ", options_.name, " connects to loopback addresses only, not to ", address,
        ", because it has neither TLS nor MUNGE (peers.tls_cert, peers.munge)"));
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) return absl::UnavailableError("the daemon is stopping");
  const auto found = by_boot_id_.find(boot_id);
  PeerPtr peer;
  if (found != by_boot_id_.end()) {
    peer = found->second;
  } else {
    peer = NewPeer(boot_id, parsed->text());
    peer->dial_ns = 1;  // at once
    changed_.notify_all();
    events_.push_back([] {});
  }
  ++peer->references;
  return peer->id;
}

absl::Status PeerNet::Impl::AddReference(PeerId id) {
  const std::lock_guard lock(mutex_);
  const PeerPtr peer = FindPeer(id);
  if (peer == nullptr) return absl::NotFoundError("the peer has gone down");
  ++peer->references;
  return absl::OkStatus();
}

void PeerNet::Impl::Release(PeerId id) {
  const std::lock_guard lock(mutex_);
  const PeerPtr peer = FindPeer(id);
  if (peer == nullptr || peer->references == 0) return;
  if (--peer->references == 0) peer->unused_since_ns = MonotonicNanos();
}

void PeerNet::Impl::Drop(PeerId id, absl::Status status) {
  const std::lock_guard lock(mutex_);
  const PeerPtr peer = FindPeer(id);
  if (peer == nullptr || stopping_) return;
  events_.push_back([this, peer, status = std::move(status)] { Down(peer, status); });
  changed_.notify_all();
}

absl::Status PeerNet::Impl::Send(PeerId id, v1::PeerMessage message) {
  const std::lock_guard lock(mutex_);
  const PeerPtr peer = FindPeer(id);
  if (peer == nullptr) return absl::NotFoundError("the peer has gone down");
  bool taken;
  if (peer->state == State::kUp) {
    taken = peer->session->stream->Write(std::move(message));
  } else {
    const size_t bytes = message.ByteSizeLong();
    taken =
        peer->pending.size() < kMaxQueuedMessages && peer->pending_bytes + bytes <= kMaxQueuedBytes;
    if (taken) {
      peer->pending_bytes += bytes;
      peer->pending.push_back(std::move(message));
    }
  }
  if (taken) return absl::OkStatus();
  absl::Status status =
      absl::ResourceExhaustedError(absl::StrCat(peer->display(), " does not take what it is sent"));
  events_.push_back([this, peer, status] { Down(peer, status); });
  changed_.notify_all();
  return status;
}

std::optional<PeerId> PeerNet::Impl::Find(uint64_t boot_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_boot_id_.find(boot_id);
  if (found == by_boot_id_.end()) return std::nullopt;
  return found->second->id;
}

}  // namespace spccl::daemon::peers
