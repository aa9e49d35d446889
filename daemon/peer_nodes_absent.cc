// In place of peer_nodes.cc in a build without UCX.
#include "daemon/peer_nodes.h"

namespace spccl::daemon {

absl::StatusOr<std::unique_ptr<Nodes>> CreatePeerNodes(peers::PeerNetOptions) {
  return absl::UnimplementedError(
      "peers.listen: this spccld was built without UCX and cannot talk to other nodes");
}

}  // namespace spccl::daemon
