// In place of munge.cc in a build without libmunge.
#include "daemon/peers/munge.h"

namespace spccl::daemon::peers {

absl::StatusOr<std::unique_ptr<Munge>> Munge::Create(const std::string&) {
  return absl::UnimplementedError(
      "peers.munge: this spccld was built without MUNGE (SPCCL_WITH_MUNGE is off); use TLS, or "
      "build it with libmunge");
}

}  // namespace spccl::daemon::peers
