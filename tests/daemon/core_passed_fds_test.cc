// Descriptors that clients pass, and that are not what the protocol expects.
#include <memory>
#include <utility>
#include <vector>


#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "tests/daemon/gate_hooks.h"
#include "tests/daemon/lingering_socket.h"
#include "tests/daemon/open_client.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::DaemonEnv;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawClient;

shm::Request MakeRegister(RawClient& client, uint32_t pieces) {
  shm::Request request =
      client.Make(pieces == 0 ? shm::RequestType::kRegisterMemfd : shm::RequestType::kRegisterCuda);
  if (pieces == 0) {
    request.buffer.size_bytes = 4096;
  } else {
    request.register_cuda.kind = shm::CudaHandleKind::kDescriptors;
    request.register_cuda.pieces = pieces;
    request.register_cuda.size_bytes = 4096;
  }
  return request;
}

// The daemon has the only reference to each: its closing of one would wait for a minute.
TEST(PassedFdsTest, SocketsThatLingerDoNotHoldUpOtherClients) {
  DaemonEnv env;
  RawClient other = Open(env), client = Open(env);
  std::vector<LingeringSocket> sockets;
  const auto pass = [&](const shm::Request& request, size_t count) {
    std::vector<int> fds;
    for (size_t i = 0; i < count; ++i) {
      sockets.push_back(MakeLingeringSocket());
      fds.push_back(sockets.back().socket.get());
    }
    EXPECT_THAT(client.Send(request, fds), IsOk());
    for (size_t i = sockets.size() - count; i < sockets.size(); ++i) sockets[i].socket.Reset();
  };
  for (const uint32_t pieces : {0u, 1u}) {
    const shm::Request request = MakeRegister(client, pieces);
    pass(request, 1);
    const auto reply = client.AwaitReply(request.request_id);
    ASSERT_THAT(reply, IsOk());
    EXPECT_EQ(reply->result, static_cast<uint32_t>(shm::Result::kInvalidArgument));
    EXPECT_THAT(other.UniqueId(), IsOk());
  }
  // More than are expected: the session ends.
  pass(MakeRegister(client, 0), 2);
  EXPECT_TRUE(client.AwaitHangup());
  EXPECT_THAT(other.UniqueId(), IsOk());
  // Sent before it is let in, and by one that has gone.
  {
    auto hasty = RawClient::Connect(env.socket_path());
    ASSERT_THAT(hasty, IsOk());
    client = *std::move(hasty);
    pass(MakeRegister(client, 0), 1);
  }
  client = Open(env);
  EXPECT_THAT(other.UniqueId(), IsOk());
}

// Nothing tells this one not to linger: the thread that closes it is stuck.
TEST(PassedFdsTest, NeitherOthersNorTheDaemonsEndWaitForOneThatCannotBeClosed) {
  DaemonEnv env;
  RawClient other = Open(env), client = Open(env);
  LingeringSocket lingering = MakeLingeringSocket();
  UniqueFd holder = MakeHolderOf(std::move(lingering.socket));
  // The core thread waits until it has the only reference.
  const auto gate = std::make_shared<Gate>();
  const auto subscription = env.core().Subscribe(0, [gate](const Event&) { gate->Enter(); });
  env.core().RecordEvent({});
  ASSERT_TRUE(gate->AwaitEntered(1));
  const shm::Request request = MakeRegister(client, 0);
  ASSERT_THAT(client.Send(request, {holder.get()}), IsOk());
  holder.Reset();
  gate->Open();
  EXPECT_THAT(client.AwaitReply(request.request_id), IsOk());
  EXPECT_THAT(other.UniqueId(), IsOk());
  env.Destroy();
  EXPECT_TRUE(other.AwaitHangup());
}

}  // namespace
}  // namespace spccl::daemon
