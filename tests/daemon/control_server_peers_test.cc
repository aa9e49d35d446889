#include "daemon/control_server_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/server_posix.h"
#include "proto/spccl/v1/control.grpc.pb.h"
#include "tests/daemon/control_server_fixture.h"
#include "tests/daemon/descriptor_limit.h"

namespace spccl::daemon {
namespace {

using ::testing::HasSubstr;

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

TEST(ControlServerPeersTest, UsersTogetherLeaveConnectionsForAdministrators) {
  constexpr uid_t kFirst = 100'000;  // of subordinate ids
  const DescriptorLimit enough(2 * PeerTable::kConnectionsOfOthers);
  PeerTable peers;
  std::vector<UniqueFd> open;
  const auto add = [&](uid_t uid, bool administrator) {
    open.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SPCCL_CHECK(open.back().valid());
    return peers.Add(open.back().get(), {.uid = uid, .administrator = administrator});
  };
  EXPECT_TRUE(add(0, true).ok());  // which the others' number does not count
  uid_t uid = kFirst;
  for (int i = 0; i < PeerTable::kConnectionsOfOthers; ++i) {
    if (i % PeerTable::kConnectionsPerUser == 0) ++uid;
    ASSERT_TRUE(add(uid, false).ok()) << i;
  }
  const absl::Status refused = add(kFirst, false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1024 control connections"));
  EXPECT_TRUE(add(kGroup, true).ok());
  open[1].Reset();
  EXPECT_TRUE(add(kFirst, false).ok());
  EXPECT_FALSE(add(kFirst, false).ok());
}

}  // namespace
}  // namespace spccl::daemon
