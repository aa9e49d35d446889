// How soon a connection is heard of again after a cut of the network.
#pragma once

#include <cstdint>

namespace spccl::daemon::peers {

// TCP doubles the time between its attempts to send a lost segment again, so that a network that is
// back after 1.5 s would be noticed after 3 s, later than a silent peer is given up. This makes the
// kernel keep to the shortest time for the first six attempts. gRPC does not give its sockets out,
// so this process's are looked through.
//
// kListener: the listening sockets of this port; what they accept inherits it. kDialed: connections
// to this port of any host. A socket that is not found keeps the kernel's usual times.
enum class Sockets { kListener, kDialed };
void UseLinearTimeouts(Sockets which, uint16_t port);

}  // namespace spccl::daemon::peers
