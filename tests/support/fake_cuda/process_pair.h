// Two processes of a test that talk over a socket.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/status.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"
#include "tests/support/multi_process.h"

namespace spccl::testing {

inline constexpr int64_t kTimeoutMs = 30'000;

// Ends the process if `condition` does not hold, with a line that says where.
#define EXPECT_IN_PROCESS(condition)                                       \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::_Exit(1);                                                       \
    }                                                                      \
  } while (false)

// Two processes' ends of a socket, over which they send bytes and descriptors.
class Ends {
 public:
  Ends() {
    int fds[2];
    SPCCL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    ends_[0].Reset(fds[0]);
    ends_[1].Reset(fds[1]);
  }
  // What a rank does first, so that it hears of the other's end.
  void Take(int rank) { ends_[1 - rank].Reset(); }
  template <class T>
  void Send(int rank, const T& value, int fd = -1) {
    iovec part = {const_cast<T*>(&value), sizeof(T)};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    EXPECT_IN_PROCESS(::sendmsg(ends_[rank].get(), &message, 0) == sizeof(T));
  }
  template <class T>
  T Receive(int rank, UniqueFd* fd = nullptr) {
    T value;
    iovec part = {&value, sizeof(T)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    EXPECT_IN_PROCESS(::recvmsg(ends_[rank].get(), &message, MSG_WAITALL) == sizeof(T));
    if (fd != nullptr) {
      const cmsghdr* const header = CMSG_FIRSTHDR(&message);
      EXPECT_IN_PROCESS(header != nullptr);
      int received;
      std::memcpy(&received, CMSG_DATA(header), sizeof(int));
      fd->Reset(received);
    }
    return value;
  }
  // Until the other has died.
  void AwaitEnd(int rank) {
    char none;
    EXPECT_IN_PROCESS(::recv(ends_[rank].get(), &none, 1, 0) == 0);
  }
  // Until the other has done the same.
  void Meet(int rank) {
    Send(rank, 'm');
    EXPECT_IN_PROCESS(Receive<char>(rank) == 'm');
  }

 private:
  UniqueFd ends_[2];
};

// Runs `body` in both; expects that both return.
inline void RunPair(const std::function<void(int rank, Ends& ends)>& body) {
  Ends ends;
  MultiProcess processes(2, [&](int rank, const MultiProcess::Report&) {
    ends.Take(rank);
    body(rank, ends);
    return 0;
  });
  ends = Ends();
  EXPECT_TRUE(AllSucceeded(processes.Wait(kTimeoutMs)));
}

}  // namespace spccl::testing
