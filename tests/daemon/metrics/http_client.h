// A plain connection to an HTTP server, for tests that say what no client should.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace spccl::daemon::metrics {

class HttpConnection {
 public:
  // `address`: as HttpServer::address() says, of a UNIX socket or IPv4.
  explicit HttpConnection(const std::string& address) {
    if (address.starts_with("unix:")) {
      sockaddr_un to{};
      to.sun_family = AF_UNIX;
      std::strncpy(to.sun_path, address.c_str() + 5, sizeof to.sun_path - 1);
      Connect(AF_UNIX, &to, sizeof to);
      return;
    }
    const size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
    EXPECT_EQ(::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr), 1);
    Connect(AF_INET, &to, sizeof to);
  }

  bool connected() const { return fd_.valid(); }
  // False: the other side takes nothing more.
  bool Send(const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t bytes = ::send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (bytes <= 0) return false;
      sent += static_cast<size_t>(bytes);
    }
    return true;
  }
  // Until the other side closes. Fails the test where it does not within ten seconds.
  std::string ReadAll() {
    std::string text;
    const int64_t deadline_ns = MonotonicNanos() + 10'000'000'000;
    for (;;) {
      pollfd query{.fd = fd_.get(), .events = POLLIN, .revents = 0};
      const int64_t left_ms = (deadline_ns - MonotonicNanos()) / 1'000'000;
      if (left_ms <= 0 || ::poll(&query, 1, static_cast<int>(left_ms)) != 1) {
        ADD_FAILURE() << "not closed in time, after: " << text;
        return text;
      }
      char piece[16384];
      const ssize_t bytes = ::recv(fd_.get(), piece, sizeof piece, 0);
      if (bytes <= 0) return text;
      text.append(piece, static_cast<size_t>(bytes));
    }
  }

 private:
  void Connect(int family, const void* to, socklen_t bytes) {
    fd_.Reset(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd_.get(), static_cast<const sockaddr*>(to), bytes) != 0) fd_.Reset();
  }

  UniqueFd fd_;
};

// The whole answer to one request.
inline std::string Ask(const std::string& address, const std::string& request) {
  HttpConnection connection(address);
  EXPECT_TRUE(connection.connected());
  EXPECT_TRUE(connection.Send(request));
  return connection.ReadAll();
}
inline std::string Get(const std::string& address, const std::string& path) {
  return Ask(address, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
}
inline std::string BodyOf(const std::string& answer) {
  const size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos ? std::string() : answer.substr(at + 4);
}

}  // namespace spccl::daemon::metrics
