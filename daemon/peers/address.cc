#include "daemon/peers/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace spccl::daemon::peers {
namespace {

constexpr size_t kMaxHostBytes = 253;  // of a DNS name

bool ParseIpv4(const std::string& host, in_addr* address) {
  return ::inet_pton(AF_INET, host.c_str(), address) == 1;
}
bool ParseIpv6(const std::string& host, in6_addr* address) {
  return ::inet_pton(AF_INET6, host.c_str(), address) == 1;
}

bool IsHostName(std::string_view host) {
  return !host.empty() && host.size() <= kMaxHostBytes &&
         std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

absl::Status Refuse(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("found \"", absl::string_view(text.data(), text.size()),
                   "\", expected HOST:PORT, with an IPv6 address in brackets"));
}

}  // namespace

std::string Address::text() const {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Refuse(text);
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  Address address;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || port.empty()) return Refuse(text);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    in6_addr parsed;
    if (!ParseIpv6(std::string(host), &parsed)) return Refuse(text);
  } else if (!IsHostName(host)) {
    return Refuse(text);
  }
  address.host = std::string(host);
  return address;
}

bool IsLoopback(std::string_view host) {
  const std::string name(host);
  in_addr v4;
  if (ParseIpv4(name, &v4)) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  if (ParseIpv6(name, &v6)) return IN6_IS_ADDR_LOOPBACK(&v6);
  return name == "localhost";
}

bool IsWildcard(std::string_view host) {
  const std::string name(host);
  in_addr v4;
  if (ParseIpv4(name, &v4)) return v4.s_addr == INADDR_ANY;
  in6_addr v6;
  return ParseIpv6(name, &v6) && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

std::string DisplayName(const std::string& name, const std::string& address) {
  return name.empty() ? address : absl::StrCat(name, " (", address, ")");
}

}  // namespace spccl::daemon::peers
