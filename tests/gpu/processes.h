// Two processes for the programs of tests/gpu, joined by a socket pair.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "tests/gpu/gpu_driver.h"

namespace spccl::gpu_test {

inline constexpr int kPeerTimeoutMs = 30000;

// Sends `bytes` bytes at `data`, and a descriptor unless it is -1.
inline void Send(int socket, const void* data, size_t bytes, int descriptor = -1) {
  iovec part = {const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  Expect(sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes), "sendmsg");
}

// Receives what one Send() sent; returns the descriptor or -1.
inline int Receive(int socket, void* data, size_t bytes) {
  pollfd ready = {socket, POLLIN, 0};
  Expect(poll(&ready, 1, kPeerTimeoutMs) == 1, "the other process answers in time");
  iovec part = {data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  Expect(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == static_cast<ssize_t>(bytes),
         "the other process has sent all of it");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return descriptor;
}

// Each waits until the other is here.
inline void Meet(int socket) {
  char byte = 0;
  Send(socket, &byte, 1);
  Receive(socket, &byte, 1);
}

// Runs `first` in this process and `second` in a child, each with its end of a socket pair, and
// ends this one: with 0 if both return, with the worse code otherwise. The child does not outlive
// it.
[[noreturn]] inline void RunTwo(const std::function<void(int)>& first, const char* first_role,
                                const std::function<void(int)>& second, const char* second_role) {
  int sockets[2];
  Expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair");
  std::fflush(stdout);
  const pid_t child = fork();
  Expect(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    role = second_role;
    close(sockets[0]);
    second(sockets[1]);
    _exit(0);
  }
  role = first_role;
  close(sockets[1]);
  first(sockets[0]);
  int status = 0;
  Expect(waitpid(child, &status, 0) == child, "waitpid");
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
  if (code == 0) std::printf("%s, %s: fine\n", first_role, second_role);
  std::fflush(stdout);
  _exit(code);
}

}  // namespace spccl::gpu_test
