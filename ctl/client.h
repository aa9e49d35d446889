// One connection to a daemon's control socket.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "ctl/context.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "proto/spccl/v1/control.grpc.pb.h"

namespace spccl::ctl {

std::string ControlSocketPath(const std::string& runtime_dir);

// Connected to a UNIX socket of that type; never blocks. Unavailable: nobody listens there.
// PermissionDenied: the folder may not be entered, or the socket not written.
absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path, int type);

// The canonical codes are the same; a lost or silent daemon's message names the socket.
absl::Status FromGrpc(const grpc::Status& status, const std::string& path, int64_t deadline_ns);

// InvalidArgument: a string in it is not UTF-8, and cannot be sent.
absl::Status CheckText(const google::protobuf::Message& request);

class Client {
 public:
  // Unavailable: nobody listens there. PermissionDenied: the folder may not be entered.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const GlobalOptions& options);

  v1::Control::Stub* stub() { return stub_.get(); }
  absl::Status Check(const grpc::Status& status) const {
    return FromGrpc(status, path_, deadline_ns_);
  }
  // A unary call, within the deadline.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&,
                                                                          Response*),
                                const Request& request) {
    if (const absl::Status text = CheckText(request); !text.ok()) return text;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(deadline_ns_));
    Response response;
    const absl::Status status = Check((stub_.get()->*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

 private:
  Client(std::string path, int64_t deadline_ns)
      : path_(std::move(path)), deadline_ns_(deadline_ns) {}

  const std::string path_;
  const int64_t deadline_ns_;
  std::unique_ptr<v1::Control::Stub> stub_;
};

// Cancels a stream on which nothing has come for too long. While disarmed it does not; the
// connection's own pings then find a daemon that hangs.
class StreamGuard {
 public:
  // Borrows the context; armed from the start.
  StreamGuard(grpc::ClientContext* context, int64_t limit_ns);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  void Rearm();   // something has come
  void Disarm();  // nothing need come
  bool expired() const { return expired_.load(); }

 private:
  void Watch();

  grpc::ClientContext* const context_;
  const std::chrono::nanoseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point due_;
  bool armed_ = true, done_ = false;
  std::atomic<bool> expired_{false};
  std::thread thread_;
};

}  // namespace spccl::ctl
