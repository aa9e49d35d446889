#include "daemon/peers/hello.h"

#include <sys/random.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::daemon::peers {
namespace {

constexpr size_t kNonceBytes = 16;

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  size_t got = 0;
  while (got < count) {
    const ssize_t more = ::getrandom(bytes.data() + got, count - got, 0);
    if (more > 0) got += static_cast<size_t>(more);  // else interrupted before there was any
  }
  return bytes;
}

void Append(const std::string& field, std::string* payload) {
  absl::StrAppend(payload, field.size(), ":", field, "\n");
}

void Append(const v1::Hello& hello, std::string* payload) {
  Append(absl::StrCat(hello.magic(), " ", hello.protocol(), " ", hello.boot_id(), " ",
                      hello.expected(), " ", hello.munge() ? 1 : 0),
         payload);
  Append(hello.version(), payload);
  Append(hello.name(), payload);
  Append(hello.address(), payload);
  Append(hello.nonce(), payload);
}

}  // namespace

v1::Hello MakeHello(const PeerNetOptions& options, const std::string& address) {
  v1::Hello hello;
  hello.set_magic(kHelloMagic);
  hello.set_protocol(options.protocol);
  hello.set_version(options.version);
  hello.set_boot_id(options.boot_id);
  hello.set_name(options.name);
  hello.set_address(address);
  hello.set_nonce(RandomBytes(kNonceBytes));
  hello.set_munge(options.munge);
  return hello;
}

absl::Status CheckHello(const v1::Hello& ours, const v1::Hello& theirs) {
  if (theirs.magic() != kHelloMagic) {
    return absl::InvalidArgumentError(absl::StrCat("not an spccld: found the magic ",
                                                   theirs.magic(), ", expected ", kHelloMagic));
  }
  // First of all: what is said of it is logged.
  if (theirs.name().size() > kMaxTextBytes || theirs.version().size() > kMaxTextBytes ||
      theirs.address().size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a malformed hello: a text of more than ", kMaxTextBytes, " bytes"));
  }
  if (theirs.protocol() != ours.protocol()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "spccld ", theirs.version(), " on ", theirs.name(), " speaks peer protocol ",
        theirs.protocol(), ", spccld ", ours.version(), " on ", ours.name(), " speaks ",
        ours.protocol(), ": the daemons of all nodes must be of one version"));
  }
  if (theirs.nonce().size() != kNonceBytes || theirs.boot_id() == 0) {
    return absl::InvalidArgumentError("a malformed hello");
  }
  for (const v1::Hello* hello : {&ours, &theirs}) {
    const v1::Hello& other = hello == &ours ? theirs : ours;
    if (hello->expected() == 0 || hello->expected() == other.boot_id()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon on ", other.name(), " has been started anew: its boot id is ",
                     absl::Hex(other.boot_id(), absl::kZeroPad16), ", expected ",
                     absl::Hex(hello->expected(), absl::kZeroPad16)));
  }
  if (theirs.boot_id() == ours.boot_id()) {
    return absl::InvalidArgumentError("a daemon has reached itself");
  }
  if (theirs.munge() != ours.munge()) {
    const bool we = ours.munge();
    return absl::UnauthenticatedError(absl::StrCat(
        "peers.munge is ", we ? "true" : "false", " on ", ours.name(), " and ",
        we ? "false" : "true", " on ", theirs.name(), ", must be the same on all nodes"));
  }
  return absl::OkStatus();
}

std::string ProofPayload(Role maker, const v1::Hello& dialer, const v1::Hello& acceptor) {
  std::string payload =
      absl::StrCat("spccl-peer ", maker == Role::kDialer ? "dialer" : "acceptor", "\n");
  Append(dialer, &payload);
  Append(acceptor, &payload);
  return payload;
}

}  // namespace spccl::daemon::peers
