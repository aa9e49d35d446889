// The daemons of other nodes over the wire: control messages over peers::PeerNet, frames over UCX.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/nodes.h"
#include "daemon/peers/peer_net.h"

namespace spccl::daemon {

// A peer is up when both its control stream and its data link are. They live and die together: a
// link that fails ends the stream, and the other way round. The side with the lower boot id offers
// the link, the other answers with an offer of its own (v1::LinkOffer).
//
// Unimplemented in a build without UCX. The options' boot id is chosen here. Call it before threads
// that read the environment start: UCX's settings go there.
absl::StatusOr<std::unique_ptr<Nodes>> CreatePeerNodes(peers::PeerNetOptions options);

}  // namespace spccl::daemon
