#include "daemon/peers/acceptor.h"

#include <arpa/inet.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/daemon/peers/stranger.h"

namespace spccl::daemon::peers {
namespace {

constexpr int64_t kForLong = 300'000'000'000;

// From that address of the machine, and from `port` unless that is 0, which is set then.
UniqueFd ConnectFrom(const char* address, uint16_t* port, uint16_t to_port) {
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  SPCCL_CHECK(::inet_pton(AF_INET, address, &from.sin_addr) == 1);
  from.sin_port = htons(*port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(to_port);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t bytes = sizeof from;
  auto* const generic = reinterpret_cast<sockaddr*>(&from);
  SPCCL_CHECK(::bind(fd.get(), generic, bytes) == 0);
  SPCCL_CHECK(::getsockname(fd.get(), generic, &bytes) == 0);
  SPCCL_CHECK(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  *port = ntohs(from.sin_port);
  return fd;
}

// What an acceptor has let in.
class Taken {
 public:
  void Add(UniqueFd socket) {
    const std::lock_guard lock(mutex_);
    sockets_.push_back(std::move(socket));
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return sockets_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<UniqueFd> sockets_;
};

TEST(AcceptorTest, WhoIsWelcomeIsKnownByAddressAndPort) {
  Taken taken;
  const auto acceptor = *Acceptor::Listen({.host = "127.0.0.1", .port = 0}, kForLong);
  acceptor->Start([&taken](UniqueFd socket) { taken.Add(std::move(socket)); });
  const std::string address = absl::StrCat("127.0.0.1:", acceptor->port());
  uint16_t port = 0;
  const UniqueFd peer = ConnectFrom("127.0.0.1", &port, acceptor->port());
  const UniqueFd stranger = ConnectFrom("127.0.0.2", &port, acceptor->port());
  while (taken.count() < 2) ::poll(nullptr, 0, 1);
  acceptor->Welcome(absl::StrCat("ipv4:127.0.0.1:", port));
  // With the stranger one more than are held.
  std::vector<UniqueFd> more;
  while (more.size() < Acceptor::kMostStrangers) more.push_back(ConnectStranger(address));
  EXPECT_TRUE(IsCutOff(stranger));
  EXPECT_FALSE(IsCutOff(peer, 0));
  acceptor->Stop();
}

}  // namespace
}  // namespace spccl::daemon::peers
