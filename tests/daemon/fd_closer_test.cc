#include "daemon/fd_closer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "gtest/gtest.h"
#include "tests/daemon/descriptor_limit.h"
#include "tests/daemon/lingering_socket.h"

namespace spccl::daemon {
namespace {

constexpr uid_t kUser = 1000, kOther = 1001;
constexpr int kPatienceMs = 10'000;

struct Pipe {
  Pipe() {
    int ends[2];
    SPCCL_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
    read.Reset(ends[0]);
    write.Reset(ends[1]);
  }
  UniqueFd read, write;
};

UniqueFd OpenAny() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// Once the writing end is closed.
bool AwaitEnd(const UniqueFd& read) {
  pollfd query{.fd = read.get(), .events = POLLIN, .revents = 0};
  return ::poll(&query, 1, kPatienceMs) == 1 && (query.revents & POLLHUP) != 0;
}

TEST(FdCloserTest, ClosesWhatIsLeftOfThosePassed) {
  Reaper reaper;
  FdCloser closer(&reaper);
  Pipe pipe, here;
  {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(pipe.write));
    const PassedFds passed(std::move(fds), kUser, &closer);
    EXPECT_EQ(passed.size(), 1u);
  }
  EXPECT_TRUE(AwaitEnd(pipe.read));
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(here.write));
  PassedFds passed(std::move(fds), kUser, &closer);
  passed.CloseHere();
  EXPECT_TRUE(passed.empty());
  pollfd query{.fd = here.read.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&query, 1, 0), 1);
}

TEST(FdCloserTest, ASocketThatLingersHoldsUpNobody) {
  Reaper reaper;
  FdCloser closer(&reaper);
  LingeringSocket lingering = MakeLingeringSocket(), beside = MakeLingeringSocket();
  closer.Close(kUser, std::move(lingering.socket));
  // A session's that was closed with a request unread.
  closer.CloseSocket(kUser, MakeHolderOf(std::move(beside.socket)));
  Pipe pipe;
  closer.Close(kOther, std::move(pipe.write));
  EXPECT_TRUE(AwaitEnd(pipe.read));
}

// What waits beside a packet at a socket that was passed, nobody can tell not to linger.
TEST(FdCloserTest, OneThatIsStuckHoldsUpNeitherMemoryNorSessionsNorItsEnd) {
  Reaper reaper;
  LingeringSocket lingering = MakeLingeringSocket();
  {
    FdCloser closer(&reaper);
    closer.Close(kUser, MakeHolderOf(std::move(lingering.socket)));
    Pipe pipe;
    closer.Close(kOther, std::move(pipe.write));
    EXPECT_TRUE(AwaitEnd(pipe.read));
    // Of no use to a closer that is stuck: closed elsewhere.
    auto memory = CreateSealedMemfd("closer-test", 4096);
    ASSERT_TRUE(memory.ok());
    const std::string path = "/proc/self/fd/" + std::to_string(memory->get());
    closer.Close(kOther, *std::move(memory));
    while (::access(path.c_str(), F_OK) == 0) ::poll(nullptr, 0, 1);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd theirs(ends[0]);
    closer.CloseSocket(kOther, UniqueFd(ends[1]));
    EXPECT_LT(::fcntl(ends[1], F_GETFD), 0);
  }
}

struct Session {
  explicit Session(int type = SOCK_SEQPACKET) {
    int ends[2];
    SPCCL_CHECK(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
    client.Reset(ends[0]);
    server.Reset(ends[1]);
  }
  UniqueFd client, server;
};

bool IsOpen(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

// A user whose closer is stuck could else have one descriptor more open with each connection.
TEST(FdCloserTest, ASocketWithPlainPacketsIsClosedByTheCaller) {
  Reaper reaper;
  FdCloser closer(&reaper);
  LingeringSocket lingering = MakeLingeringSocket();
  closer.Close(kUser, MakeHolderOf(std::move(lingering.socket)));
  Session plain, left;
  const int plain_number = plain.server.get(), left_number = left.server.get();
  for (const char* packet : {"hello", "", "x"}) {
    for (const Session* session : {&plain, &left}) {
      ASSERT_TRUE(shm::SendPacket(session->client.get(), packet, std::strlen(packet)).ok());
    }
  }
  closer.CloseSocket(kUser, std::move(plain.server));
  EXPECT_FALSE(IsOpen(plain_number));
  // By one that has gone with a reply unread.
  ASSERT_TRUE(shm::SendPacket(left.server.get(), "reply", 5).ok());
  left.client.Reset();
  closer.CloseSocket(kUser, std::move(left.server));
  EXPECT_FALSE(IsOpen(left_number));
}

TEST(FdCloserTest, WhatIsBehindPlainPacketsIsNotClosedByTheCaller) {
  Reaper reaper;
  FdCloser closer(&reaper);
  LingeringSocket lingering = MakeLingeringSocket(), second = MakeLingeringSocket();
  closer.Close(kUser, MakeHolderOf(std::move(lingering.socket)));
  Session session;
  const int number = session.server.get();
  for (const char* packet : {"hello", ""}) {
    ASSERT_TRUE(shm::SendPacket(session.client.get(), packet, std::strlen(packet)).ok());
  }
  ASSERT_TRUE(shm::SendPacket(session.client.get(), "x", 1, {second.socket.get()}).ok());
  second.socket.Reset();
  closer.CloseSocket(kUser, std::move(session.server));
  EXPECT_TRUE(IsOpen(number));
}

// As of control.sock's connections.
TEST(FdCloserTest, WhatIsBesideAStreamsBytesIsNotClosedByTheCaller) {
  FdCloser closer(nullptr);
  LingeringSocket lingering = MakeLingeringSocket(), second = MakeLingeringSocket();
  closer.Close(kUser, MakeHolderOf(std::move(lingering.socket)));
  const std::string much(10'000, 'x');
  for (const bool passes : {false, true}) {
    Session stream(SOCK_STREAM);
    const int number = stream.server.get();
    ASSERT_TRUE(shm::SendPacket(stream.client.get(), much.data(), much.size()).ok());
    if (passes) {
      ASSERT_TRUE(shm::SendPacket(stream.client.get(), "x", 1, {second.socket.get()}).ok());
      second.socket.Reset();
    }
    closer.CloseSocket(kUser, std::move(stream.server));
    EXPECT_EQ(IsOpen(number), passes);
  }
}

// The thread that closes finds them, and tells them not to linger.
TEST(FdCloserTest, WhatIsBehindAStreamsBytesDoesNotLinger) {
  FdCloser closer(nullptr);
  LingeringSocket lingering = MakeLingeringSocket();
  Session stream(SOCK_STREAM);
  const std::string much(10'000, 'x');
  ASSERT_TRUE(shm::SendPacket(stream.client.get(), much.data(), much.size()).ok());
  ASSERT_TRUE(shm::SendPacket(stream.client.get(), "x", 1, {lingering.socket.get()}).ok());
  lingering.socket.Reset();
  closer.CloseSocket(kUser, std::move(stream.server));
  Pipe behind;
  closer.Close(kUser, std::move(behind.write));
  EXPECT_TRUE(AwaitEnd(behind.read));
}

// A byte that is urgent with a descriptor beside it. Whether the kernel knows such bytes.
bool SendUrgent(int socket, int fd) {
  char byte = 'x';
  iovec piece{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return ::sendmsg(socket, &message, MSG_OOB | MSG_NOSIGNAL) == 1;
}

TEST(FdCloserTest, WhatIsBesideAStreamsUrgentByteIsNotClosedByTheCaller) {
  FdCloser closer(nullptr);
  LingeringSocket lingering = MakeLingeringSocket(), second = MakeLingeringSocket();
  closer.Close(kUser, MakeHolderOf(std::move(lingering.socket)));
  Session stream(SOCK_STREAM);
  const int number = stream.server.get();
  if (!SendUrgent(stream.client.get(), second.socket.get())) {
    GTEST_SKIP() << "a kernel without urgent bytes in UNIX sockets";
  }
  second.socket.Reset();
  closer.CloseSocket(kUser, std::move(stream.server));
  EXPECT_TRUE(IsOpen(number));
}

TEST(FdCloserTest, ItIsFullAtAQuarterOfWhatTheProcessMayHaveOpen) {
  Reaper reaper;
  std::optional<FdCloser> closer;
  {
    const DescriptorLimit limit(1024);
    closer.emplace(&reaper);
  }
  LingeringSocket lingering = MakeLingeringSocket();
  closer->Close(kUser, MakeHolderOf(std::move(lingering.socket)));
  for (size_t i = 1; i < 256; ++i) {
    EXPECT_FALSE(closer->IsFull());
    closer->Close(kUser, OpenAny());
  }
  EXPECT_TRUE(closer->IsFull());
}

TEST(FdCloserTest, WhereItIsFullForLackOfThreadsItIsNotWhenThereAreSome) {
  std::optional<FdCloser> closer;
  bool no_threads = true;
  {
    const DescriptorLimit limit(1024);
    closer.emplace(nullptr, FdCloserHooks{.start = [&](const std::function<void()>& run) {
                     if (no_threads) throw std::system_error(EAGAIN, std::system_category());
                     StartFdCloser(run);
                   }});
  }
  for (size_t i = 0; i < 256; ++i) closer->Close(kUser, OpenAny());
  EXPECT_TRUE(closer->IsFull());
  no_threads = false;
  // Nobody passes anything more.
  while (closer->IsFull()) std::this_thread::yield();
}

// A clock that is set by hand, and threads that run when they are told to.
class FdCloserByHandTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;

  void Pass(size_t count) {
    for (size_t i = 0; i < count; ++i) closer_.Close(kUser, OpenAny());
  }

  int64_t now_ns_ = 1;
  bool no_threads_ = false;
  std::function<void()> on_close_ = [] {};
  std::vector<std::function<void()>> threads_;
  Reaper reaper_;
  FdCloser closer_{&reaper_,
                   {.now_ns = [this] { return now_ns_; },
                    .start =
                        [this](std::function<void()> run) {
                          if (no_threads_) throw std::system_error(EAGAIN, std::system_category());
                          threads_.push_back(std::move(run));
                        },
                    .close = [this](UniqueFd) { on_close_(); }}};
};

TEST_F(FdCloserByHandTest, AUserIsFullWhereManyHaveWaited) {
  Pass(FdCloser::kMostOfAUser);
  now_ns_ += kSecond;
  EXPECT_FALSE(closer_.IsFullOf(kUser));
  ++now_ns_;
  EXPECT_TRUE(closer_.IsFullOf(kUser));
  EXPECT_FALSE(closer_.IsFullOf(kOther));
  ASSERT_EQ(threads_.size(), 1u);
  threads_[0]();
  EXPECT_FALSE(closer_.IsFullOf(kUser));
}

// Each is closed within the second, and all take minutes.
TEST_F(FdCloserByHandTest, AUserWhoseDescriptorsAreSlowToCloseIsFull) {
  Pass(FdCloser::kMostOfAUser + 2);
  std::vector<bool> full;
  on_close_ = [this, &full] {
    full.push_back(closer_.IsFullOf(kUser));
    now_ns_ += kSecond * 9 / 10;
  };
  threads_.at(0)();
  ASSERT_EQ(full.size(), FdCloser::kMostOfAUser + 2);
  EXPECT_FALSE(full[0]);
  EXPECT_FALSE(full[1]);
  EXPECT_TRUE(full[2]);
  EXPECT_FALSE(full[3]);  // so few may wait for as long as they like
}

TEST_F(FdCloserByHandTest, AUserIsFullWhereVeryManyWait) {
  Pass(FdCloser::kMostAtOnce - 1);
  EXPECT_FALSE(closer_.IsFullOf(kUser));
  Pass(1);
  EXPECT_TRUE(closer_.IsFullOf(kUser));
}

// Of few descriptors one user leaves others half of those that may wait.
TEST(FdCloserTest, AUserIsFullWhereItHasHalfOfAllThatMayWait) {
  std::optional<FdCloser> closer;
  {
    const DescriptorLimit limit(1024);
    closer.emplace(nullptr, FdCloserHooks{.start = [](const std::function<void()>&) {}});
  }
  for (size_t i = 0; i < 127; ++i) closer->Close(kUser, OpenAny());
  EXPECT_FALSE(closer->IsFullOf(kUser));
  closer->Close(kUser, OpenAny());
  EXPECT_TRUE(closer->IsFullOf(kUser));
  EXPECT_FALSE(closer->IsFull());
}

TEST_F(FdCloserByHandTest, AUserOfWhomNoneAreClosedForWantOfThreadsIsFullUntilThereIsOne) {
  no_threads_ = true;
  Pass(FdCloser::kMostOfAUser);
  now_ns_ += 2 * kSecond;
  EXPECT_TRUE(closer_.IsFullOf(kUser));
  no_threads_ = false;
  EXPECT_TRUE(closer_.IsFullOf(kUser));
  ASSERT_EQ(threads_.size(), 1u);
  threads_[0]();
  EXPECT_FALSE(closer_.IsFullOf(kUser));
}

// A packet of 0 bytes is one, too.
TEST(FdCloserTest, AnEmptyPacketsDescriptorIsNotClosedByTheCaller) {
  Reaper reaper;
  FdCloser closer(&reaper);
  LingeringSocket lingering = MakeLingeringSocket();
  closer.Close(kUser, MakeHolderOf(std::move(lingering.socket)));
  LingeringSocket second = MakeLingeringSocket();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd theirs(ends[0]);
  ASSERT_TRUE(shm::SendPacket(theirs.get(), "", 0, {second.socket.get()}).ok());
  second.socket.Reset();
  closer.CloseSocket(kUser, UniqueFd(ends[1]));
  EXPECT_GE(::fcntl(ends[1], F_GETFD), 0);  // the closer, which is stuck, has it
}

}  // namespace
}  // namespace spccl::daemon
