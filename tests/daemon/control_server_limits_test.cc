// How much of the control server one may have, and what nobody can hold up.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control_server.h"
#include "daemon/control_server_peers.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/shm/socket.h"
#include "tests/daemon/control_server_fixture.h"
#include "tests/daemon/descriptor_limit.h"
#include "tests/daemon/lingering_socket.h"

namespace spccl::daemon {
namespace {

using Code = grpc::StatusCode;
using ControlServerLimitsTest = ControlServerTest;

int CountOf(const std::string& piece, const std::string& text) {
  int count = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) {
    ++count;
  }
  return count;
}

TEST_F(ControlServerLimitsTest, EachUserHasAShareOfTheConnections) {
  Start();
  std::vector<UniqueFd> open;
  for (int i = 0; i < PeerTable::kConnectionsPerUser; ++i) open.push_back(ConnectTo(path()));
  const UniqueFd refused = ConnectTo(path());
  ASSERT_TRUE(refused.valid());
  char byte;
  EXPECT_EQ(::recv(refused.get(), &byte, 1, 0), 0);  // closed at once, with nothing said
  EXPECT_GT(::recv(open[0].get(), &byte, 1, 0), 0);  // gRPC greets the others
}

// Of three connections too many of each of two users.
TEST_F(ControlServerLimitsTest, ARefusalIsSaidOncePerUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  for (const bool always : {false, true}) {
    if (always) options_.say_again_ns = 0;
    Start();
    std::vector<UniqueFd> open;
    ::testing::internal::CaptureStderr();
    for (const uid_t user : {kNobody, uid_t{0}}) {
      for (int i = 0; i < PeerTable::kConnectionsPerUser + 3; ++i) {
        open.push_back(ConnectAs(path(), user, {}));
      }
      for (size_t i = open.size() - 3; i < open.size(); ++i) EXPECT_TRUE(AwaitEnd(open[i]));
    }
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(CountOf("connection refused error=\"uid 0 has", log), always ? 3 : 1) << log;
    EXPECT_EQ(CountOf("connection refused error=\"uid 65534 has", log), always ? 3 : 1) << log;
    server_.reset();
  }
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

TEST_F(ControlServerLimitsTest, ARefusedConnectionThatPassesWhatCannotBeClosedHoldsUpNoOther) {
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

TEST_F(ControlServerLimitsTest, WhatWaitsToBeLetInDoesNotHoldUpItsEnd) {
  Start();
  LetPassDescriptors(path());
  LingeringSocket lingering = MakeLingeringSocket();
  const UniqueFd waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const DescriptorLimit none(3);  // nobody is accepted
  ASSERT_TRUE(Connect(waiting, path()));
  ASSERT_TRUE(shm::SendPacket(waiting.get(), "x", 1, {lingering.socket.get()}).ok());
  lingering.socket.Reset();
  std::future<void> end = std::async(std::launch::async, [this] { server_.reset(); });
  EXPECT_EQ(end.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_TRUE(AwaitEnd(waiting));
}

// Calls that hold a thread each, of a service that counts none.
class ReflectionStreams {
 public:
  static constexpr int kStreamsPerConnection = 8;

  ~ReflectionStreams() {
    for (const auto& context : contexts_) context->TryCancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  void Open(UniqueFd socket) {
    const int fd = socket.Release();
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    stubs_.push_back(
        std::make_unique<grpc::GenericStub>(grpc::CreateInsecureChannelFromFd("test", fd)));
    for (int i = 0; i < kStreamsPerConnection; ++i) {
      contexts_.push_back(std::make_unique<grpc::ClientContext>());
      contexts_.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      calls_.push_back(stubs_.back()->Call(
          contexts_.back().get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
          &queue_, nullptr));
      statuses_.push_back(std::make_unique<grpc::Status>());
      calls_.back()->Finish(statuses_.back().get(), statuses_.back().get());
    }
  }
  // How the first ends that ends.
  grpc::Status AwaitOne() {
    void* tag = nullptr;
    bool ok;
    while (tag == nullptr && queue_.Next(&tag, &ok)) {
    }
    return *static_cast<grpc::Status*>(tag);
  }

 private:
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::Status>> statuses_;
  std::vector<std::unique_ptr<grpc::GenericClientAsyncReaderWriter>> calls_;
};

TEST_F(ControlServerLimitsTest, NobodysCallsKeepAdministratorsOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  options_.max_threads = 3 * ReflectionStreams::kStreamsPerConnection;
  Start();
  ReflectionStreams streams;
  for (int connection = 0; connection < 4; ++connection) {
    UniqueFd socket = ConnectAs(path(), kNobody, {});
    ASSERT_TRUE(socket.valid());
    streams.Open(std::move(socket));
  }
  EXPECT_EQ(streams.AwaitOne().error_code(), Code::RESOURCE_EXHAUSTED);
  // The others hold all threads now.
  EXPECT_EQ(Drain(StubOn(ConnectAs(path(), kNobody, {})).get()).error_code(),
            Code::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Drain(StubOn(ConnectTo(path())).get()).ok());
}

}  // namespace
}  // namespace spccl::daemon
