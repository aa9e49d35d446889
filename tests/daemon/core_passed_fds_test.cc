// Descriptors that clients pass, and that are not what the protocol expects.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/status.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "tests/daemon/descriptor_limit.h"
#include "tests/daemon/gate_hooks.h"
#include "tests/daemon/lingering_socket.h"
#include "tests/daemon/open_client.h"
#include "tests/daemon/other_user.h"
#include "tests/support/daemon_env.h"
#include "tests/support/pass_rights.h"
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
  // By one that has gone.
  client = Open(env);
  pass(MakeRegister(client, 0), 1);
  client = Open(env);
  EXPECT_THAT(other.UniqueId(), IsOk());
}

TEST(PassedFdsTest, WhoIsNotLetInYetPassesNone) {
  DaemonEnv env;
  auto client = RawClient::Connect(env.socket_path());
  ASSERT_THAT(client, IsOk());
  if (!spccl::testing::CanForbidToPass(client->socket())) GTEST_SKIP() << "a kernel before 6.16";
  const UniqueFd file(::eventfd(0, EFD_CLOEXEC));
  EXPECT_FALSE(client->Send(MakeRegister(*client, 0), {file.get()}).ok());
  ASSERT_THAT(client->Hello(), IsOk());
  EXPECT_THAT(client->Send(MakeRegister(*client, 0), {file.get()}), IsOk());
}

// Has the core thread wait until it is opened.
std::unique_ptr<Subscription> HoldCore(DaemonEnv& env, const std::shared_ptr<Gate>& gate) {
  auto subscription = env.core().Subscribe(0, [gate](const EventPtr&) { gate->Enter(); });
  env.core().RecordEvent({});
  EXPECT_TRUE(gate->AwaitEntered(1));
  return subscription;
}

// Nothing tells this one not to linger: the thread that closes it is stuck.
TEST(PassedFdsTest, NeitherOthersNorTheDaemonsEndWaitForOneThatCannotBeClosed) {
  DaemonEnv env;
  RawClient other = Open(env), client = Open(env);
  LingeringSocket lingering = MakeLingeringSocket();
  UniqueFd holder = MakeHolderOf(std::move(lingering.socket));
  const auto gate = std::make_shared<Gate>();
  const auto subscription = HoldCore(env, gate);
  const shm::Request request = MakeRegister(client, 0);
  ASSERT_THAT(client.Send(request, {holder.get()}), IsOk());
  holder.Reset();  // the daemon has the only reference
  gate->Open();
  EXPECT_THAT(client.AwaitReply(request.request_id), IsOk());
  EXPECT_THAT(other.UniqueId(), IsOk());
  env.Destroy();
  EXPECT_TRUE(other.AwaitHangup());
}

TEST(PassedFdsTest, WhatIsBesideAnEmptyPacketHoldsUpNobody) {
  DaemonEnv env;
  RawClient client = Open(env), other = Open(env);
  LingeringSocket lingering = MakeLingeringSocket();
  const auto gate = std::make_shared<Gate>();
  const auto subscription = HoldCore(env, gate);
  ASSERT_THAT(shm::SendPacket(client.socket(), "", 0, {lingering.socket.get()}), IsOk());
  lingering.socket.Reset();
  gate->Open();
  EXPECT_TRUE(client.AwaitHangup());
  EXPECT_THAT(other.UniqueId(), IsOk());
}

TEST(PassedFdsTest, WhoHasPassedTooManyThatCannotBeClosedIsNotServed) {
  DaemonEnv env;
  RawClient client = Open(env);
  LingeringSocket lingering = MakeLingeringSocket();
  UniqueFd holder = MakeHolderOf(std::move(lingering.socket));
  const UniqueFd other(::eventfd(0, EFD_CLOEXEC));
  const auto gate = std::make_shared<Gate>();
  const auto subscription = HoldCore(env, gate);
  ASSERT_THAT(client.Send(MakeRegister(client, 0), {holder.get()}), IsOk());
  holder.Reset();
  for (size_t passed = 1; passed < FdCloser::kMostOfAUser; passed += shm::kMaxPassedFds) {
    ASSERT_THAT(client.Send(MakeRegister(client, shm::kMaxPassedFds),
                            std::vector<int>(shm::kMaxPassedFds, other.get())),
                IsOk());
  }
  gate->Open();
  // Until it is sure that they do not get on.
  while (client.UniqueId().ok()) ::poll(nullptr, 0, 1);
  EXPECT_TRUE(client.AwaitHangup());
  EXPECT_FALSE(RawClient::Open(env.socket_path()).ok());
}

// Of no user can it be known what it passes before its connection is accepted.
TEST(PassedFdsTest, WhereTooManyCannotBeClosedConnectionsWait) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::optional<DaemonEnv> env;
  {
    const DescriptorLimit limit(1024);
    env.emplace();
  }
  LetOthersIn(*env);
  RawClient clients[] = {OpenAs(kUser, env->socket_path()).value(),
                         OpenAs(kOther, env->socket_path()).value()};
  LingeringSocket lingering[] = {MakeLingeringSocket(), MakeLingeringSocket()};
  const UniqueFd other(::eventfd(0, EFD_CLOEXEC));
  const auto gate = std::make_shared<Gate>();
  const auto subscription = HoldCore(*env, gate);
  shm::Request last[2];
  for (int user = 0; user < 2; ++user) {
    const UniqueFd holder = MakeHolderOf(std::move(lingering[user].socket));
    ASSERT_THAT(clients[user].Send(MakeRegister(clients[user], 0), {holder.get()}), IsOk());
    for (size_t passed = 1; passed < 128; passed += shm::kMaxPassedFds) {
      last[user] = MakeRegister(clients[user], shm::kMaxPassedFds);
      ASSERT_THAT(clients[user].Send(last[user], std::vector<int>(shm::kMaxPassedFds, other.get())),
                  IsOk());
    }
  }
  ::testing::internal::CaptureStderr();
  gate->Open();
  for (int user = 0; user < 2; ++user) {
    EXPECT_THAT(clients[user].AwaitReply(last[user].request_id), IsOk());
  }
  auto late = RawClient::Connect(env->socket_path());
  // A turn of the core's that begins later: it has seen that one waits.
  for (int i = 0; i < 2; ++i) EXPECT_THAT(env->core().GetSnapshot(), IsOk());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("connections wait error=\"users have passed too many"));
  for (LingeringSocket& each : lingering) {
    each.reader.Reset();
    each.listener.Reset();
  }
  ASSERT_THAT(late, IsOk());
  EXPECT_THAT(late->Hello(), IsOk());
}

// Takes all that the process, and so the daemon in it, may open.
class NoDescriptors {
 public:
  explicit NoDescriptors(bool hard) : few_(512, hard) {
    for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.emplace_back(fd);
  }

 private:
  const DescriptorLimit few_;
  std::vector<UniqueFd> taken_;
};

TEST(PassedFdsTest, WhereTheDaemonHasUsedAllThatItMayThereIsRoomForThem) {
  DaemonEnv env;
  RawClient client = Open(env), other = Open(env);
  constexpr int kPieces = 3;
  std::vector<LingeringSocket> sockets;
  std::vector<int> fds;
  for (int i = 0; i < kPieces; ++i) {
    sockets.push_back(MakeLingeringSocket());
    fds.push_back(sockets.back().socket.get());
  }
  ASSERT_THAT(client.UniqueId(), IsOk());  // what the daemon opened for the Hello is closed
  const auto gate = std::make_shared<Gate>();
  const auto subscription = HoldCore(env, gate);
  const shm::Request request = MakeRegister(client, kPieces);
  ASSERT_THAT(client.Send(request, fds), IsOk());
  for (LingeringSocket& lingering : sockets) lingering.socket.Reset();
  const NoDescriptors none(/*hard=*/false);
  gate->Open();
  const auto reply = client.AwaitReply(request.request_id);
  ASSERT_THAT(reply, IsOk());
  EXPECT_THAT(std::string(shm::TextOf(reply->message)),
              ::testing::Not(::testing::HasSubstr("out of descriptors")));
  EXPECT_THAT(other.UniqueId(), IsOk());
}

TEST(PassedFdsTest, WhereTheDaemonHasNoRoomForThemTheClientIsToldAndGoesOn) {
  if (::geteuid() != 0) GTEST_SKIP() << "to raise a hard limit again needs root";
  DaemonEnv env;
  RawClient client = Open(env);
  const auto memory = CreateSealedMemfd("passed", 4096);
  ASSERT_TRUE(memory.ok());
  ASSERT_THAT(client.UniqueId(), IsOk());  // what the daemon opened for the Hello is closed
  {
    const NoDescriptors none(/*hard=*/true);
    // So many that some are lost even where others, of tests before, are being closed.
    const auto reply = client.Call(MakeRegister(client, shm::kMaxPassedFds),
                                   std::vector<int>(shm::kMaxPassedFds, memory->get()));
    ASSERT_THAT(reply, IsOk());
    EXPECT_EQ(reply->result, static_cast<uint32_t>(shm::Result::kSystemError));
    EXPECT_THAT(std::string(shm::TextOf(reply->message)),
                ::testing::HasSubstr("out of descriptors"));
  }
  const auto reply = client.Call(MakeRegister(client, 0), {memory->get()});
  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ(reply->result, 0u) << reply->message;
}

}  // namespace
}  // namespace spccl::daemon
