// The control socket: gRPC (spccl.v1.Control, grpc.health.v1, reflection) on a UNIX socket in the
// runtime directory, for callers of any uid; rights are decided call by call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "daemon/control.h"
#include "daemon/fd_closer.h"
#include "daemon/job_table.h"
#include "daemon/settings_store.h"
#include "proto/shm/socket.h"

namespace spccl::daemon {

inline std::string ControlSocketPath(const std::string& runtime_dir) {
  return runtime_dir + "/control.sock";
}

struct ControlServerOptions {
  std::string runtime_dir;  // must exist
  std::string admin_group;  // by name or number; empty: only root and the daemon's own user
  // How often the health service's state is brought up to the core's.
  int64_t health_interval_ns = 500'000'000;
  // So many threads at most serve administrators, and so many the others; a call holds one.
  int max_threads = 1024;
  // How long what keeps connections out is not said again; anybody can connect in a loop.
  int64_t say_again_ns = 60'000'000'000;
  // Throws std::system_error where there can be no thread more. Tests have others.
  std::function<std::thread(std::function<void()>)> start = [](std::function<void()> run) {
    return std::thread(std::move(run));
  };
};

class ControlServer {
 public:
  // Listens and serves. Borrows the core, the settings and the jobs, which must outlive the server.
  // A stale socket file is replaced; AlreadyExists: another daemon listens there.
  // ResourceExhausted: there can be no thread more.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Create(ControlServerOptions options,
                                                               Control* core,
                                                               SettingsStore* settings,
                                                               JobTable* jobs);
  // Ends all calls (streams within 100 ms, others at the latest after a second) and removes the
  // socket file.
  ~ControlServer();
  // Removes the socket file, also for a process that ends here and now.
  void RemoveSocket() const { listener_file_.Remove(); }
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  struct Services;  // all that knows gRPC

  ControlServer(ControlServerOptions options, Control* core);
  absl::Status StartThreads();
  void StopListening();
  void AcceptLoop();
  void Accept();
  // Why a connection is not let in, unless that has been said of late.
  void Say(LogLevel level, const char* message, const std::string& error);
  void HealthLoop();
  void TellHealth();
  // Sleeps on the stop descriptor, and on `fd` if it is not -1. False: the server stops.
  bool Wait(int fd, int64_t timeout_ns) const;

  const ControlServerOptions options_;
  Control* const core_;
  FdCloser closer_{nullptr};
  UniqueFd listener_;
  shm::SocketFile listener_file_;
  UniqueFd stop_;  // an eventfd, readable once the server stops
  std::unique_ptr<Services> services_;
  std::map<std::string, int64_t> said_ns_;  // when, by error; of accept_thread_
  std::thread accept_thread_;
  std::thread health_thread_;
  std::optional<bool> told_health_;  // of the thread that starts the server, then of health_thread_
};

}  // namespace spccl::daemon
