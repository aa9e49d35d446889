// A service manager, as far as sd_notify's protocol goes: NOTIFY_SOCKET of this process and of
// those that it starts, for as long as the owner lives. Not thread-safe.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace spccl::testing {

class NotifySocket {
 public:
  // `watchdog_ns`: what WATCHDOG_USEC is to say; 0: nothing.
  explicit NotifySocket(int64_t watchdog_ns = 0)
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const std::string path = folder_.path() + "/notify";
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    SPCCL_CHECK(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    if (watchdog_ns > 0) {
      ::setenv("WATCHDOG_USEC", absl::StrCat(watchdog_ns / 1000).c_str(), 1);
    }
  }
  ~NotifySocket() {
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
  }

  // The next message, if one comes within the time.
  std::optional<std::string> Next(int64_t timeout_ms) {
    pollfd query{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&query, 1, static_cast<int>(timeout_ms)) <= 0) return std::nullopt;
    std::array<char, 4096> bytes;
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0) return std::nullopt;
    return std::string(bytes.data(), static_cast<size_t>(got));
  }
  // The first message with this line; those before it are dropped. Empty: none has come in time.
  std::string Await(const std::string& line, int64_t timeout_ms = 30'000) {
    const int64_t end_ns = MonotonicNanos() + timeout_ms * 1'000'000;
    while (MonotonicNanos() < end_ns) {
      const auto message = Next(100);
      if (message && absl::StrContains("\n" + *message + "\n", "\n" + line + "\n")) return *message;
    }
    return "";
  }
  // Drops what has come.
  void Clear() {
    while (Next(0)) {
    }
  }

 private:
  TempFolder folder_;
  UniqueFd socket_;
};

}  // namespace spccl::testing
