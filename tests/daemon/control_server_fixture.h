// A control server over a fake core, and those who call it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/control_server.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/spccl/v1/control.grpc.pb.h"
#include "tests/daemon/fake_control.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {

inline constexpr uid_t kNobody = 65534;
inline constexpr gid_t kGroup = 54321;

inline bool Connect(const UniqueFd& socket, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

inline UniqueFd ConnectTo(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return Connect(socket, path) ? std::move(socket) : UniqueFd();
}

// Whether it is hung up on in time.
inline bool AwaitEnd(const UniqueFd& socket) {
  pollfd query{.fd = socket.get(), .events = POLLIN, .revents = 0};
  return ::poll(&query, 1, 20'000) == 1 && (query.revents & POLLHUP) != 0;
}

// Connects as another user. The system calls themselves, unlike the C library's functions of these
// names, change the calling thread only; it is a thread of its own.
inline UniqueFd ConnectAs(const std::string& path, uid_t uid, const std::vector<gid_t>& groups) {
  return std::async(std::launch::async,
                    [&] {
                      if (::syscall(SYS_setgroups, groups.size(), groups.data()) != 0 ||
                          ::syscall(SYS_setresgid, uid, uid, uid) != 0 ||
                          ::syscall(SYS_setresuid, uid, uid, uid) != 0) {
                        return UniqueFd();
                      }
                      return ConnectTo(path);
                    })
      .get();
}

inline std::unique_ptr<v1::Control::Stub> StubOn(UniqueFd socket) {
  // gRPC wants its descriptors non-blocking.
  const int fd = socket.Release();
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return v1::Control::NewStub(grpc::CreateInsecureChannelFromFd("test", fd));
}

inline grpc::Status Drain(v1::Control::Stub* stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::DrainResponse response;
  return stub->Drain(&context, v1::DrainRequest(), &response);
}

class ControlServerTest : public ::testing::Test {
 protected:
  ControlServerTest() {
    ::chmod(folder_.c_str(), 0755);
    settings_ = *SettingsStore::Create(folder_, {});
    core_.Update([](Snapshot* snapshot) { *snapshot = SampleSnapshot({kNobody, 12}); });
  }
  ~ControlServerTest() override { server_.reset(); }

  std::string path() const { return ControlSocketPath(folder_); }
  absl::StatusOr<std::unique_ptr<ControlServer>> TryStart(const std::string& group = "") {
    options_.admin_group = group;
    return ControlServer::Create(options_, &core_, settings_.get(), jobs_.get());
  }
  void Start(const std::string& group = "") {
    absl::StatusOr<std::unique_ptr<ControlServer>> server = TryStart(group);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::shared_ptr<grpc::Channel> Channel() {
    return grpc::CreateChannel("unix:" + path(), grpc::InsecureChannelCredentials());
  }
  // A unary call of any service: the bytes of its reply.
  std::string Ask(const std::string& method, const std::string& request) {
    grpc::GenericStub stub(Channel());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const grpc::Slice slice(request);
    const grpc::ByteBuffer message(&slice, 1);
    grpc::CompletionQueue queue;
    void* tag;
    bool ok;
    const auto call = stub.Call(&context, method, &queue, &tag);  // starts it, too
    queue.Next(&tag, &ok);
    call->WriteLast(message, grpc::WriteOptions(), &tag);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer reply;
    call->Read(&reply, &tag);
    queue.Next(&tag, &ok);
    std::string bytes;
    std::vector<grpc::Slice> slices;
    if (ok && reply.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) bytes.append(part.begin(), part.end());
    }
    grpc::Status status;
    call->Finish(&status, &tag);
    queue.Next(&tag, &ok);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return bytes;
  }
  // Of the whole server, or of one service: SERVING is 1, NOT_SERVING is 2.
  int Health(const std::string& service) {
    const std::string request =
        service.empty() ? "" : std::string("\x0a") + static_cast<char>(service.size()) + service;
    const std::string reply = Ask("/grpc.health.v1.Health/Check", request);
    return reply.size() == 2 ? reply[1] : 0;
  }
  bool HealthBecomes(int state) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < limit) {
      if (Health("") == state && Health("spccl.v1.Control") == state) return true;
    }
    return false;
  }

  const spccl::testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  ControlServerOptions options_{.runtime_dir = folder_, .health_interval_ns = 5'000'000};
  FakeControl core_;
  std::unique_ptr<SettingsStore> settings_;
  std::unique_ptr<JobTable> jobs_ = *JobTable::Create(folder_ + "/jobs");
  std::unique_ptr<ControlServer> server_;
};

}  // namespace spccl::daemon
