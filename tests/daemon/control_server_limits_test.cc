// How much of the control server one may have, and what nobody can hold up.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>
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

using ControlServerLimitsTest = ControlServerTest;

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

// Calls that hold a thread each, of a service that counts none.
TEST_F(ControlServerLimitsTest, NobodysCallsKeepAdministratorsOut) {
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

}  // namespace
}  // namespace spccl::daemon
