#include "daemon/control_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "daemon/control_server_peers.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/server_posix.h"
#include "proto/shm/socket.h"
#include "proto/spccl/v1/control.grpc.pb.h"
#include "tests/daemon/descriptor_limit.h"
#include "tests/daemon/fake_control.h"
#include "tests/daemon/lingering_socket.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

constexpr uid_t kNobody = 65534;
constexpr gid_t kGroup = 54321;

bool Connect(const UniqueFd& socket, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return Connect(socket, path) ? std::move(socket) : UniqueFd();
}

// Whether it is hung up on in time.
bool AwaitEnd(const UniqueFd& socket) {
  pollfd query{.fd = socket.get(), .events = POLLIN, .revents = 0};
  return ::poll(&query, 1, 20'000) == 1 && (query.revents & POLLHUP) != 0;
}

// Connects as another user. The system calls themselves, unlike the C library's functions of these
// names, change the calling thread only; it is a thread of its own.
UniqueFd ConnectAs(const std::string& path, uid_t uid, const std::vector<gid_t>& groups) {
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

std::unique_ptr<v1::Control::Stub> StubOn(UniqueFd socket) {
  // gRPC wants its descriptors non-blocking.
  const int fd = socket.Release();
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return v1::Control::NewStub(grpc::CreateInsecureChannelFromFd("test", fd));
}

grpc::Status Drain(v1::Control::Stub* stub) {
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
    return ControlServer::Create(
        {.runtime_dir = folder_, .admin_group = group, .health_interval_ns = 5'000'000}, &core_,
        settings_.get(), jobs_.get());
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
  FakeControl core_;
  std::unique_ptr<SettingsStore> settings_;
  std::unique_ptr<JobTable> jobs_ = *JobTable::Create(folder_ + "/jobs");
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, OurOwnUserIsAnAdministrator) {
  Start();
  const auto stub = v1::Control::NewStub(Channel());
  EXPECT_TRUE(Drain(stub.get()).ok());
  struct stat info;
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
}

TEST_F(ControlServerTest, TheKernelSaysWhoCalls) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  Start(std::to_string(kGroup));
  EXPECT_EQ(Drain(StubOn(ConnectAs(path(), kNobody, {})).get()).error_code(),
            Code::PERMISSION_DENIED);
  EXPECT_EQ(Drain(StubOn(ConnectAs(path(), kNobody, {7, kGroup + 1})).get()).error_code(),
            Code::PERMISSION_DENIED);
  std::vector<gid_t> many(100);
  for (gid_t i = 0; i < many.size(); ++i) many[i] = 70000 + i;
  many.push_back(kGroup);
  EXPECT_TRUE(Drain(StubOn(ConnectAs(path(), kNobody, {7, kGroup})).get()).ok());
  EXPECT_TRUE(Drain(StubOn(ConnectAs(path(), kNobody, many)).get()).ok());
  EXPECT_TRUE(Drain(StubOn(ConnectAs(path(), kGroup, {})).get()).ok()) << "as its primary group";
  const auto stranger = StubOn(ConnectAs(path(), kNobody, {}));
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(stranger->ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).uid(), kNobody);
}

TEST_F(ControlServerTest, AReusedDescriptorHasItsNewCaller) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  Start();
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(Drain(StubOn(ConnectAs(path(), kNobody, {})).get()).error_code(),
              Code::PERMISSION_DENIED);
    EXPECT_TRUE(Drain(StubOn(ConnectTo(path())).get()).ok());
  }
}

// What the table of peers rests on: while a call is in progress its connection's descriptor stays
// open, so nobody else's connection can have its number.
TEST(ControlServerPeersTest, ADescriptorOutlivesItsCalls) {
  class Probe final : public v1::Control::Service {
   public:
    grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                           v1::GetStatusResponse*) override {
      entered.set_value();
      while (!context->IsCancelled()) std::this_thread::yield();
      bool same_all_along = true;
      for (int i = 0; i < 1000; ++i, std::this_thread::yield()) {
        struct stat now;
        same_all_along &= ::fstat(fd, &now) == 0 && now.st_ino == inode;
      }
      same.set_value(same_all_along);
      return grpc::Status::OK;
    }
    int fd = -1;
    ino_t inode = 0;
    std::promise<void> entered;
    std::promise<bool> same;
  };
  Probe probe;
  grpc::ServerBuilder builder;
  builder.RegisterService(&probe);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  struct stat info;
  ASSERT_EQ(::fstat(ends[0], &info), 0);
  probe.fd = ends[0];
  probe.inode = info.st_ino;
  grpc::AddInsecureChannelFromFd(server.get(), ends[0]);
  std::thread client([&ends, &probe] {
    const auto stub = StubOn(UniqueFd(ends[1]));
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    std::thread killer([&ends, &probe] {
      probe.entered.get_future().wait();
      ::shutdown(ends[1], SHUT_RDWR);  // as if the caller had died
    });
    EXPECT_FALSE(stub->GetStatus(&context, v1::GetStatusRequest(), &response).ok());
    killer.join();
  });
  EXPECT_TRUE(probe.same.get_future().get());
  client.join();
  server->Shutdown();
}

TEST_F(ControlServerTest, EachUserHasAShareOfTheConnections) {
  Start();
  std::vector<UniqueFd> open;
  for (int i = 0; i < PeerTable::kConnectionsPerUser; ++i) open.push_back(ConnectTo(path()));
  const UniqueFd refused = ConnectTo(path());
  ASSERT_TRUE(refused.valid());
  char byte;
  EXPECT_EQ(::recv(refused.get(), &byte, 1, 0), 0);  // closed at once, with nothing said
  EXPECT_GT(::recv(open[0].get(), &byte, 1, 0), 0);  // gRPC greets the others
}

// As before Linux 6.16, where a stream takes descriptors.
void LetPassDescriptors(const std::string& path) {
  constexpr int kPassRights = 83, kOn = 1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_un address = {};
    socklen_t bytes = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        address.sun_family == AF_UNIX && path == address.sun_path) {
      (void)::setsockopt(fd, SOL_SOCKET, kPassRights, &kOn, sizeof kOn);
    }
  }
}

TEST_F(ControlServerTest, ARefusedConnectionThatPassesWhatCannotBeClosedHoldsUpNoOther) {
  Start();
  LetPassDescriptors(path());
  char byte;
  std::vector<UniqueFd> open;
  for (int i = 0; i < PeerTable::kConnectionsPerUser; ++i) {
    open.push_back(ConnectTo(path()));
    ASSERT_EQ(::recv(open.back().get(), &byte, 1, 0), 1);
  }
  LingeringSocket lingering = MakeLingeringSocket();
  const UniqueFd refused(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const DescriptorLimit none(3);  // nobody is accepted meanwhile
    ASSERT_TRUE(Connect(refused, path()));
    ASSERT_TRUE(shm::SendPacket(refused.get(), "x", 1, {lingering.socket.get()}).ok());
    lingering.socket.Reset();
  }
  EXPECT_TRUE(AwaitEnd(refused));
  EXPECT_TRUE(AwaitEnd(ConnectTo(path())));
}

TEST_F(ControlServerTest, HealthFollowsTheCore) {
  core_.Update([](Snapshot* snapshot) { snapshot->core.healthy = false; });
  Start();
  EXPECT_EQ(Health(""), 2);  // from the first moment on
  EXPECT_EQ(Health("spccl.v1.Control"), 2);
  core_.Update([](Snapshot* snapshot) { snapshot->core.healthy = true; });
  EXPECT_TRUE(HealthBecomes(1));
  core_.Fail(absl::DeadlineExceededError("stuck"));
  EXPECT_TRUE(HealthBecomes(2));
}

TEST_F(ControlServerTest, ReflectionNamesTheServices) {
  Start();
  const std::string reply = Ask("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                std::string("\x3a\x01*", 3));  // list_services: "*"
  EXPECT_THAT(reply, HasSubstr("spccl.v1.Control"));
  EXPECT_THAT(reply, HasSubstr("grpc.health.v1.Health"));
}

// Calls that hold a thread each, of a service that counts none.
TEST_F(ControlServerTest, NobodysCallsKeepAdministratorsOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Start();
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::GenericClientAsyncReaderWriter>> calls;
  grpc::CompletionQueue queue;
  for (int connection = 0; connection < 48; ++connection) {
    UniqueFd socket = ConnectAs(path(), kNobody, {});
    ASSERT_TRUE(socket.valid());
    const int fd = socket.Release();
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    stubs.push_back(
        std::make_unique<grpc::GenericStub>(grpc::CreateInsecureChannelFromFd("test", fd)));
    for (int stream = 0; stream < 32; ++stream) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      calls.push_back(stubs.back()->Call(
          contexts.back().get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
          &queue, nullptr));
    }
  }
  EXPECT_TRUE(Drain(StubOn(ConnectTo(path())).get()).ok());
  for (const auto& context : contexts) context->TryCancel();
  queue.Shutdown();
  void* tag;
  bool ok;
  while (queue.Next(&tag, &ok)) {
  }
}

TEST_F(ControlServerTest, ItStopsWithStreamsOpenAndRemovesItsSocket) {
  Start();
  const auto stub = v1::Control::NewStub(Channel());
  grpc::ClientContext context;
  v1::StreamEventsRequest request;
  request.set_follow(true);
  const auto reader = stub->StreamEvents(&context, request);
  ASSERT_TRUE(core_.WaitForSubscribers(1));
  server_.reset();
  v1::StreamEventsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_TRUE(core_.WaitForSubscribers(0));
}

TEST_F(ControlServerTest, AStaleSocketIsReplacedAndALiveOneIsNot) {
  Start();
  EXPECT_EQ(TryStart().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Drain(v1::Control::NewStub(Channel()).get()).ok());
  server_.reset();
  {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().data(), path().size());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path()));
  Start();
  EXPECT_TRUE(Drain(v1::Control::NewStub(Channel()).get()).ok());
}

TEST_F(ControlServerTest, WhatItCannotStartWithIsSaid) {
  EXPECT_EQ(TryStart("no-such-group-here").status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(TryStart().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace spccl::daemon
