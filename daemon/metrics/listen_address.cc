#include "daemon/metrics/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/view.h"
#include "daemon/peers/address.h"

namespace spccl::daemon::metrics {
namespace {

constexpr size_t kMaxPathBytes = 107;  // that a socket's address holds

bool IsIpAddress(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  constexpr std::string_view kPrefix = "unix:";
  if (text == "unix") return ListenAddress{};
  if (text.starts_with(kPrefix)) {
    const std::string_view path = text.substr(kPrefix.size());
    if (!path.starts_with('/') || path.ends_with('/') || path.size() > kMaxPathBytes ||
        path.find('\0') != std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("found ", View(text), ", expected unix: and an absolute path of at most ",
                       kMaxPathBytes, " bytes"));
    }
    return ListenAddress{.path = std::string(path), .host = {}};
  }
  SPCCL_ASSIGN_OR_RETURN(const peers::Address address, peers::ParseAddress(text));
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  if (!IsIpAddress(host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found the name ", address.host, ", expected an IP address or localhost"));
  }
  return ListenAddress{.is_unix = false, .path = {}, .host = host, .port = address.port};
}

bool IsOpen(const ListenAddress& address) {
  return !address.is_unix && !peers::IsLoopback(address.host);
}

}  // namespace spccl::daemon::metrics
