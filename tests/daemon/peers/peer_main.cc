// A daemon's PeerNet in a process of its own, to be killed and frozen: prints its address, then
// sends back what it gets. Arguments: boot id, listen address, heartbeat interval in ms.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "daemon/peers/peer_net.h"

int main(int argc, char** argv) {
  using namespace spccl::daemon::peers;
  if (argc != 4) return 2;
  PeerNetOptions options;
  options.boot_id = std::strtoull(argv[1], nullptr, 10);
  options.listen = argv[2];
  options.heartbeat_interval_ns = std::strtoll(argv[3], nullptr, 10) * 1'000'000;
  options.name = "child";
  options.version = "1.2.3";
  // Callbacks run on the net's thread, which is there before Create has returned: release and
  // acquire hand over what the net is made of.
  std::atomic<PeerNet*> net = nullptr;
  absl::StatusOr<std::unique_ptr<PeerNet>> made =
      PeerNet::Create(options, {.on_up = [](PeerId, const PeerInfo&) {},
                                .on_message =
                                    [&net](PeerId peer, spccl::v1::PeerMessage message) {
                                      PeerNet* const made = net.load(std::memory_order_acquire);
                                      (void)made->Send(peer, std::move(message)).ok();
                                    },
                                .on_down = [](PeerId, const absl::Status&) {}});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
    return 1;
  }
  net.store(made->get(), std::memory_order_release);  // before anybody knows where to connect
  std::printf("%s\n", (*made)->address().c_str());
  std::fflush(stdout);
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
