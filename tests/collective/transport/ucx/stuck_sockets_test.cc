#include "collective/transport/ucx/stuck_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace spccl::transport::ucx {
namespace {

constexpr int64_t kPatience = 1000;

// Connections to ourselves, watched as UCX does: by a descriptor that another one watches.
class StuckSocketsTest : public ::testing::Test {
 protected:
  struct Connection {
    UniqueFd near, far;

    bool HasRoom() const {
      pollfd room = {.fd = near.get(), .events = POLLOUT, .revents = 0};
      return ::poll(&room, 1, 0) == 1;
    }
    // Until nothing more goes, nothing is on its way, and nothing could be: what is acknowledged
    // later would be seen as a move, what was just now may have made room, and what is left of a
    // window the kernel sends a fifth of a second later.
    void Fill() const {
      const std::vector<char> bytes(1 << 16);
      const int64_t deadline_ns = MonotonicNanos() + int64_t{20'000'000'000};
      tcp_info info = {};
      do {
        ASSERT_LT(MonotonicNanos(), deadline_ns) << info.tcpi_unacked << " packets on their way";
        while (::send(near.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        }
        ASSERT_EQ(errno, EAGAIN);
        socklen_t size = sizeof info;
        ASSERT_EQ(::getsockopt(near.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
      } while (info.tcpi_unacked > 0 || info.tcpi_snd_wnd > 0 || HasRoom());
    }
    // Until the sender has room again.
    void Drain() const {
      std::vector<char> bytes(1 << 20);
      while (!HasRoom()) ASSERT_GT(::recv(far.get(), bytes.data(), bytes.size(), 0), 0);
    }
    bool IsUp() const {
      const char byte = 0;
      const bool sent = ::send(near.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
      return sent || errno == EAGAIN;
    }
  };

  StuckSocketsTest() : outer_(::epoll_create1(0)), inner_(::epoll_create1(0)) {
    Watch(outer_, inner_);
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
    KeepBuffer(listener_, SO_RCVBUF);  // those that it accepts have it too
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    socklen_t size = sizeof address_;
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }

  static void Watch(const UniqueFd& epoll, const UniqueFd& fd) {
    epoll_event event = {};
    event.events = EPOLLIN;
    EXPECT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event), 0);
  }

  // A buffer that the kernel tunes may grow, and make room, when nobody expects it.
  static void KeepBuffer(const UniqueFd& fd, int which) {
    const int bytes = 1 << 16;
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, which, &bytes, sizeof bytes), 0);
  }

  Connection Connect() const {
    Connection made;
    made.near = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
    KeepBuffer(made.near, SO_SNDBUF);
    EXPECT_EQ(
        ::connect(made.near.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_),
        0);
    made.far = UniqueFd(::accept(listener_.get(), nullptr, nullptr));
    return made;
  }
  Connection ConnectWatched() const {
    Connection made = Connect();
    Watch(inner_, made.near);
    return made;
  }

  // Both are full from 0 on, and looked at then and at `now_ns`; only `busy` moves between.
  void SeeOneOfTwoMove(const Connection& busy, const Connection& dead, int64_t now_ns) {
    busy.Fill();
    dead.Fill();
    EXPECT_FALSE(stuck_.Clear(0, kPatience));
    busy.Drain();
    busy.Fill();
    EXPECT_FALSE(stuck_.Clear(now_ns, kPatience));
  }

  UniqueFd outer_, inner_, listener_;
  sockaddr_in address_ = {};
  StuckSockets stuck_{outer_.get()};
};

TEST_F(StuckSocketsTest, NothingWatchedIsNothingStuck) {
  EXPECT_TRUE(stuck_.Clear(0, kPatience));
  EXPECT_TRUE(StuckSockets(-1).Clear(0, kPatience));
}

TEST_F(StuckSocketsTest, OneThatStaysFullIsShutDownInTheEnd) {
  const Connection full = ConnectWatched(), idle = ConnectWatched();
  EXPECT_TRUE(stuck_.Clear(0, kPatience));
  full.Fill();
  EXPECT_FALSE(stuck_.Clear(5000, kPatience));
  EXPECT_FALSE(stuck_.Clear(5000 + kPatience - 1, kPatience));
  EXPECT_TRUE(full.IsUp());
  EXPECT_TRUE(stuck_.Clear(5000 + kPatience, kPatience));
  EXPECT_FALSE(full.IsUp());
  EXPECT_TRUE(idle.IsUp());
  EXPECT_TRUE(stuck_.Clear(9000, kPatience));
}

TEST_F(StuckSocketsTest, WithoutPatienceAtOnce) {
  const Connection full = ConnectWatched();
  full.Fill();
  EXPECT_TRUE(stuck_.Clear(1, 0));
  EXPECT_FALSE(full.IsUp());
}

TEST_F(StuckSocketsTest, OneThatIsFullButMovesIsLeftAlone) {
  const Connection busy = ConnectWatched(), dead = ConnectWatched();
  SeeOneOfTwoMove(busy, dead, kPatience - 1);
  EXPECT_TRUE(stuck_.Clear(kPatience, kPatience));
  EXPECT_TRUE(busy.IsUp());
  EXPECT_FALSE(dead.IsUp());
}

TEST_F(StuckSocketsTest, OneThatMovedHasToMoveAgainForTheNext) {
  const Connection busy = ConnectWatched(), dead = ConnectWatched();
  SeeOneOfTwoMove(busy, dead, 1);
  stuck_.Begin();
  EXPECT_FALSE(stuck_.Clear(kPatience, kPatience)) << "not seen to move since";
  EXPECT_FALSE(dead.IsUp());
  busy.Drain();
  EXPECT_TRUE(stuck_.Clear(kPatience + 1, kPatience));
  EXPECT_TRUE(busy.IsUp());
}

TEST_F(StuckSocketsTest, WhatTheWorkerDoesNotWatchIsNotItsOwn) {
  const Connection others = Connect();
  others.Fill();
  EXPECT_TRUE(stuck_.Clear(0, 0));
  EXPECT_TRUE(others.IsUp());
}

}  // namespace
}  // namespace spccl::transport::ucx
