// Where the metrics are served: what `metrics_listen` may say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace spccl::daemon::metrics {

inline constexpr std::string_view kDefaultListen = "unix";

struct ListenAddress {
  // A UNIX socket, at `path`; empty: metrics.sock in the runtime directory. Else TCP.
  bool is_unix = true;
  std::string path;
  std::string host;  // an IP address, without brackets
  uint16_t port = 0;

  bool operator==(const ListenAddress&) const = default;
};

// "unix", "unix:PATH" with an absolute path, or HOST:PORT with an IP address (IPv6 in brackets) or
// localhost, which is 127.0.0.1; no name is ever looked up. Port 0: any.
// InvalidArgument: what was found and what was expected.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// Whether other machines can reach it.
bool IsOpen(const ListenAddress& address);

}  // namespace spccl::daemon::metrics
