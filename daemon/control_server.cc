#include "daemon/control_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/control_server_peers.h"
#include "daemon/control_service.h"
#include "daemon/peer.h"
#include "daemon/plan_models.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_posix.h"
#include "proto/shm/socket.h"

namespace spccl::daemon {
namespace {

constexpr char kServiceName[] = "spccl.v1.Control";
constexpr int kMaxStreamsPerConnection = 8;
constexpr int kLeastPingIntervalMs = 500;
constexpr int kMaxRequestBytes = 64 * 1024;
// Administrators load models.
constexpr int kMaxAdministratorsRequestBytes =
    static_cast<int>(PlanModels::kMostBytes) + kMaxRequestBytes;
constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr std::chrono::seconds kShutdownLimit(1);

std::unique_ptr<grpc::Server> BuildServer(ControlService* service, int max_threads,
                                          int max_request_bytes) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(max_request_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // Callers that follow a stream ping now and then, to find out when we hang.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kLeastPingIntervalMs);
  grpc::ResourceQuota quota("control");
  quota.SetMaxThreads(max_threads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  return builder.BuildAndStart();
}

}  // namespace

struct ControlServer::Services {
  Services(std::optional<gid_t> admin_group, Control* core, SettingsStore* settings, JobTable* jobs)
      : admin_group(admin_group), service(core, settings, jobs, [this](const std::string& peer) {
          return peers.Find(peer);
        }) {}

  const std::optional<gid_t> admin_group;
  PeerTable peers;
  ControlService service;
  // Administrators have one of their own, so that no others' calls, each of which holds a thread,
  // keep them out: reflection knows no CallLimit.
  std::unique_ptr<grpc::Server> administrators, others;
};

ControlServer::ControlServer(ControlServerOptions options, Control* core)
    : options_(std::move(options)), core_(core) {}

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Create(ControlServerOptions options,
                                                                     Control* core,
                                                                     SettingsStore* settings,
                                                                     JobTable* jobs) {
  SPCCL_ASSIGN_OR_RETURN(const std::optional<gid_t> group, ResolveGroup(options.admin_group));
  std::unique_ptr<ControlServer> server(new ControlServer(std::move(options), core));
  server->stop_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_.valid()) return ErrnoStatus(errno, "eventfd");
  server->services_ = std::make_unique<Services>(group, core, settings, jobs);
  Services& services = *server->services_;
  const int threads = server->options_.max_threads;
  services.administrators = BuildServer(&services.service, threads, kMaxAdministratorsRequestBytes);
  services.others = BuildServer(&services.service, threads, kMaxRequestBytes);
  if (services.administrators == nullptr || services.others == nullptr) {
    return absl::InternalError("gRPC did not start");
  }
  server->TellHealth();  // before anybody can ask
  // Whoever may reach the folder may connect; who it is decides what it may do.
  SPCCL_ASSIGN_OR_RETURN(server->listener_,
                         shm::ListenUnix(ControlSocketPath(server->options_.runtime_dir),
                                         SOCK_STREAM | SOCK_NONBLOCK, 0666));
  server->listener_file_ = shm::SocketFile(ControlSocketPath(server->options_.runtime_dir));
  SPCCL_RETURN_IF_ERROR(server->StartThreads());
  return server;
}

absl::Status ControlServer::StartThreads() {
  try {
    accept_thread_ = options_.start([this] { AcceptLoop(); });
    health_thread_ = options_.start([this] { HealthLoop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to serve the control socket: ", error.what()));
  }
  return absl::OkStatus();
}

ControlServer::~ControlServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  if (accept_thread_.joinable()) accept_thread_.join();
  if (health_thread_.joinable()) health_thread_.join();
  StopListening();
  if (services_ == nullptr) return;
  services_->service.Stop();
  const auto deadline = std::chrono::system_clock::now() + kShutdownLimit;
  for (const auto* one : {&services_->administrators, &services_->others}) {
    if (*one == nullptr) continue;
    (*one)->Shutdown(deadline);
    (*one)->Wait();
  }
}

void ControlServer::StopListening() {
  if (!listener_.valid()) return;
  RemoveSocket();
  ::shutdown(listener_.get(), SHUT_RDWR);
  // Before Linux 6.16 those who wait there may have sent descriptors already.
  closer_.Close(::geteuid(), std::move(listener_));
}

bool ControlServer::Wait(int fd, int64_t timeout_ns) const {
  pollfd entries[] = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                      {.fd = fd, .events = POLLIN, .revents = 0}};  // poll() skips a negative one
  const int timeout_ms = timeout_ns < 0 ? -1 : static_cast<int>(timeout_ns / kNanosPerMilli);
  return ::poll(entries, 2, timeout_ms) <= 0 || entries[0].revents == 0;
}

void ControlServer::AcceptLoop() {
  while (Wait(listener_.get(), -1)) Accept();
}

void ControlServer::Accept() {
  const auto let_wait = [this](const char* reason) {
    Say(LogLevel::kError, "cannot accept: connections wait", reason);
    Wait(-1, 100 * kNanosPerMilli);  // the connection stays in the backlog: do not spin on it
  };
  if (closer_.IsFull()) return let_wait("users have passed too many descriptors");
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      let_wait(std::strerror(errno));
    }
    return;
  }
  const absl::StatusOr<Caller> caller = CallerOf(socket.get(), services_->admin_group);
  const absl::Status status =
      caller.ok() ? services_->peers.Add(socket.get(), *caller) : caller.status();
  if (!status.ok()) {
    Say(LogLevel::kWarning, "connection refused", std::string(status.message()));
    // Before Linux 6.16 there may be descriptors beside what it has sent.
    const uid_t user = UserOf(socket.get());
    return closer_.CloseSocket(user, std::move(socket));
  }
  auto& server = caller->administrator ? services_->administrators : services_->others;
  grpc::AddInsecureChannelFromFd(server.get(), socket.Release());
}

void ControlServer::Say(LogLevel level, const char* message, const std::string& error) {
  const int64_t now_ns = MonotonicNanos();
  std::erase_if(said_ns_, [this, now_ns](const auto& said) {
    return now_ns - said.second >= options_.say_again_ns;
  });
  if (!said_ns_.emplace(error, now_ns).second) return;
  Log(level, "control", message, {{"error", error}});
}

void ControlServer::HealthLoop() {
  while (Wait(-1, options_.health_interval_ns)) TellHealth();
}

void ControlServer::TellHealth() {
  const bool healthy = core_->GetProgress().healthy;
  if (told_health_ == healthy) return;
  told_health_ = healthy;
  for (const auto* one : {&services_->administrators, &services_->others}) {
    grpc::HealthCheckServiceInterface* health = (*one)->GetHealthCheckService();
    health->SetServingStatus("", healthy);  // the server as a whole
    health->SetServingStatus(kServiceName, healthy);
  }
}

}  // namespace spccl::daemon
