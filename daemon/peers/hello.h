// What two daemons say to begin with, and what each must prove about it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/peers/peer_net.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon::peers {

inline constexpr uint32_t kHelloMagic = 0x52455053;  // "SPER"

// Of a name, a version, an address. What a stranger says at more length is not said on.
inline constexpr size_t kMaxTextBytes = 256;

// With a fresh nonce from the kernel's random source.
v1::Hello MakeHello(const PeerNetOptions& options, const std::string& address);

// Whether `theirs` may be spoken with. FailedPrecondition: other protocols, or another boot id than
// the one meant, on either side; both values are named. Unauthenticated: only one side uses MUNGE.
// InvalidArgument: it is no hello of a daemon.
absl::Status CheckHello(const v1::Hello& ours, const v1::Hello& theirs);

// What a MUNGE credential must carry: the role of its maker and all that both hellos say, so that
// it is good for this connection and this side of it only.
enum class Role { kDialer, kAcceptor };
std::string ProofPayload(Role maker, const v1::Hello& dialer, const v1::Hello& acceptor);

}  // namespace spccl::daemon::peers
