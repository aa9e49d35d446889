#include "proto/shm/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pass_rights.h"
#include "tests/support/temp_folder.h"

namespace spccl::shm {
namespace {

using ::testing::HasSubstr;

class SocketTest : public ::testing::Test {
 protected:
  SocketTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    left_.Reset(ends[0]);
    right_.Reset(ends[1]);
  }

  std::string Path() const { return folder_ + "/socket"; }

  const spccl::testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  UniqueFd left_;
  UniqueFd right_;
};

TEST_F(SocketTest, APacketArrivesWholeOrNotAtAll) {
  ASSERT_TRUE(SendPacket(left_.get(), "first", 5).ok());
  ASSERT_TRUE(SendPacket(left_.get(), "second", 6).ok());
  char data[64];
  auto packet = ReceivePacket(right_.get(), data, sizeof data);
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_EQ(std::string(data, packet->bytes), "first");
  EXPECT_FALSE(packet->truncated);
  EXPECT_TRUE(packet->fds.empty());
  packet = ReceivePacket(right_.get(), data, sizeof data);
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_EQ(std::string(data, packet->bytes), "second");
}

TEST_F(SocketTest, DescriptorsArriveOpenInOrderAndClosedOnExec) {
  std::array<UniqueFd, kMaxPassedFds> reads;
  std::vector<int> writes;
  for (auto& read : reads) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read.Reset(ends[0]);
    writes.push_back(ends[1]);
  }
  ASSERT_TRUE(SendPacket(left_.get(), "x", 1, writes).ok());
  for (const int fd : writes) ::close(fd);
  char data[8];
  auto packet = ReceivePacket(right_.get(), data, sizeof data);
  ASSERT_TRUE(packet.ok()) << packet.status();
  ASSERT_EQ(packet->fds.size(), size_t{kMaxPassedFds});
  for (int i = 0; i < kMaxPassedFds; ++i) {
    EXPECT_NE(::fcntl(packet->fds[i].get(), F_GETFD) & FD_CLOEXEC, 0);
    const char sent = static_cast<char>('a' + i);
    ASSERT_EQ(::write(packet->fds[i].get(), &sent, 1), 1);
    char got = 0;
    ASSERT_EQ(::read(reads[i].get(), &got, 1), 1);
    EXPECT_EQ(got, sent);
  }
}

TEST_F(SocketTest, ALongerPacketIsMarkedTruncated) {
  ASSERT_TRUE(SendPacket(left_.get(), "longer", 6).ok());
  char data[4];
  auto packet = ReceivePacket(right_.get(), data, sizeof data);
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_EQ(packet->bytes, sizeof data);
  EXPECT_TRUE(packet->truncated);
}

// A client may pass more than the protocol allows: the daemon sees it, and leaks none of them.
TEST_F(SocketTest, TooManyDescriptorsAreMarkedTruncatedAndNotLeaked) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  constexpr int kTooMany = 253;  // SCM_MAX_FD of the kernel
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kTooMany)] = {};
  char byte = 'x';
  iovec piece{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * kTooMany);
  for (int i = 0; i < kTooMany; ++i) {
    std::memcpy(CMSG_DATA(header) + i * sizeof(int), &ends[1], sizeof(int));
  }
  ASSERT_EQ(::sendmsg(left_.get(), &message, 0), 1);
  ::close(ends[1]);
  {
    char data[8];
    auto packet = ReceivePacket(right_.get(), data, sizeof data);
    ASSERT_TRUE(packet.ok()) << packet.status();
    EXPECT_TRUE(packet->truncated);
    EXPECT_FALSE(packet->lost_fds);
    EXPECT_EQ(packet->fds.size(), size_t{kTooMany});  // none is closed by the kernel
  }
  // With every copy of the writing end closed, the reading end is at its end of file.
  ASSERT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

TEST_F(SocketTest, NothingToReadWouldBlock) {
  char data[8];
  const absl::Status status = ReceivePacket(right_.get(), data, sizeof data).status();
  EXPECT_TRUE(IsWouldBlock(status)) << status;
}

TEST_F(SocketTest, AFullSocketWouldBlockAndLosesNothing) {
  std::vector<char> block(16 << 10, 'b');
  int sent = 0;
  absl::Status status;
  while ((status = SendPacket(left_.get(), block.data(), block.size())).ok()) ++sent;
  EXPECT_TRUE(IsWouldBlock(status)) << status;
  ASSERT_GT(sent, 0);
  for (int i = 0; i < sent; ++i) {
    auto packet = ReceivePacket(right_.get(), block.data(), block.size());
    ASSERT_TRUE(packet.ok()) << packet.status();
    EXPECT_EQ(packet->bytes, block.size());
  }
  EXPECT_TRUE(SendPacket(left_.get(), "x", 1).ok());
}

TEST_F(SocketTest, OtherFailuresAreNotWouldBlock) {
  EXPECT_FALSE(IsWouldBlock(absl::OkStatus()));
  EXPECT_FALSE(IsWouldBlock(absl::UnavailableError("connect /x: Connection refused")));
  char data[8];
  EXPECT_FALSE(IsWouldBlock(ReceivePacket(-1, data, sizeof data).status()));
}

TEST_F(SocketTest, AClosedSocketReadsAsZeroBytesAndSendsAnErrorNotASignal) {
  left_.Reset();
  char data[8];
  auto packet = ReceivePacket(right_.get(), data, sizeof data);
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_EQ(packet->bytes, 0u);
  EXPECT_TRUE(absl::IsUnavailable(SendPacket(right_.get(), "x", 1)));
}

TEST_F(SocketTest, ConnectsToAListener) {
  auto listener = ListenSession(Path(), 0666);
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto client = ConnectSession(Path());
  ASSERT_TRUE(client.ok()) << client.status();
  UniqueFd server(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(server.valid());
  ASSERT_TRUE(SendPacket(client->get(), "hello", 5).ok());
  char data[8];
  auto packet = ReceivePacket(server.get(), data, sizeof data);
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_EQ(std::string(data, packet->bytes), "hello");
}

TEST_F(SocketTest, TheSocketFileHasTheModeAskedFor) {
  for (const unsigned mode : {0600u, 0660u, 0666u}) {
    auto listener = ListenSession(Path(), mode);
    ASSERT_TRUE(listener.ok()) << listener.status();
    struct stat info;
    ASSERT_EQ(::stat(Path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777u, mode);
  }
}

TEST_F(SocketTest, AStreamTakesNoDescriptors) {
  auto listener = ListenUnix(Path(), SOCK_STREAM, 0600);
  ASSERT_TRUE(listener.ok()) << listener.status();
  if (!spccl::testing::CanForbidToPass(listener->get())) GTEST_SKIP() << "a kernel before 6.16";
  const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, Path().c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
  EXPECT_FALSE(SendPacket(client.get(), "x", 1, {client.get()}).ok());  // before it is accepted
  const UniqueFd accepted(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_FALSE(SendPacket(client.get(), "x", 1, {client.get()}).ok());
  EXPECT_TRUE(SendPacket(client.get(), "x", 1).ok());
}

TEST_F(SocketTest, WhoConnectsPassesNoDescriptorsUntilItMay) {
  auto listener = ListenSession(Path(), 0600);
  ASSERT_TRUE(listener.ok()) << listener.status();
  if (!spccl::testing::CanForbidToPass(listener->get())) GTEST_SKIP() << "a kernel before 6.16";
  auto client = ConnectSession(Path());
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_FALSE(SendPacket(client->get(), "x", 1, {client->get()}).ok());  // before it is accepted
  const UniqueFd accepted(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_FALSE(SendPacket(client->get(), "x", 1, {client->get()}).ok());
  EXPECT_TRUE(SendPacket(client->get(), "x", 1).ok());
  LetPassDescriptors(accepted.get());
  EXPECT_TRUE(SendPacket(client->get(), "x", 1, {client->get()}).ok());
  EXPECT_TRUE(SendPacket(accepted.get(), "x", 1, {client->get()}).ok());  // the daemon always may
}

TEST_F(SocketTest, NobodyListening) {
  EXPECT_TRUE(absl::IsNotFound(ConnectSession(Path()).status()));
  { ASSERT_TRUE(ListenSession(Path(), 0600).ok()); }
  EXPECT_TRUE(absl::IsUnavailable(ConnectSession(Path()).status())) << "a stale socket file";
}

TEST_F(SocketTest, AStaleSocketFileIsReplaced) {
  { ASSERT_TRUE(ListenSession(Path(), 0600).ok()); }
  ASSERT_TRUE(std::filesystem::exists(Path()));
  auto listener = ListenSession(Path(), 0600);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ConnectSession(Path()).ok());
}

TEST_F(SocketTest, OnlyTheFileThatWasBoundIsRemoved) {
  SocketFile().Remove();
  const auto first = ListenSession(Path(), 0600);
  ASSERT_TRUE(first.ok()) << first.status();
  const SocketFile bound(Path());
  std::filesystem::rename(Path(), Path() + ".old");  // its number is not given out again
  const auto second = ListenSession(Path(), 0600);
  ASSERT_TRUE(second.ok()) << second.status();
  bound.Remove();
  EXPECT_TRUE(ConnectSession(Path()).ok());
  SocketFile(Path()).Remove();
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

TEST_F(SocketTest, ALiveSocketIsRefusedAndGoesOn) {
  auto first = ListenSession(Path(), 0600);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status status = ListenSession(Path(), 0600).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path()));
  EXPECT_TRUE(ConnectSession(Path()).ok());
}

// A daemon that hangs: its backlog fills. Neither a client nor a second daemon may hang with it.
TEST_F(SocketTest, AFullBacklogIsLiveAndConnectingToItHasADeadline) {
  auto listener = ListenSession(Path(), 0600);
  ASSERT_TRUE(listener.ok()) << listener.status();
  ASSERT_EQ(::listen(listener->get(), 0), 0);
  std::vector<UniqueFd> waiting;
  absl::Status status;
  for (int i = 0; i < 4 && status.ok(); ++i) {
    auto client = ConnectSession(Path(), /*timeout_ns=*/20'000'000);
    status = client.status();
    if (client.ok()) waiting.push_back(*std::move(client));
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not accept"));
  EXPECT_TRUE(absl::IsAlreadyExists(ListenSession(Path(), 0600).status()));
}

TEST_F(SocketTest, AFileThatIsNoSocketIsLeftAlone) {
  UniqueFd file(::open(Path().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  const absl::Status status = ListenSession(Path(), 0600).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(std::filesystem::is_regular_file(Path()));
}

TEST_F(SocketTest, ASocketOfAnotherTypeThatIsInUseIsLeftAlone) {
  UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, Path().c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(stream.get(), 1), 0);
  EXPECT_FALSE(ListenSession(Path(), 0600).ok());
  UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

TEST_F(SocketTest, APathThatCannotBeASocketIsRefused) {
  const std::string long_path = folder_ + "/" + std::string(200, 'n');
  for (const std::string& path : {std::string(), long_path}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ConnectSession(path).status())) << path;
    EXPECT_TRUE(absl::IsInvalidArgument(ListenSession(path, 0600).status())) << path;
  }
}

}  // namespace
}  // namespace spccl::shm
