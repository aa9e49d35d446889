// The client's end of a relay (proto/shm/relay.h): passes one operation's buffer through it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "client/region.h"
#include "proto/shm/relay.h"

namespace spccl::client {

// Used by one thread, for one operation.
class Relay {
 public:
  // `memory` has at least kRelayBytes and belongs to nobody else. Copies nothing yet.
  // `ring_daemon` rings the session's doorbell.
  Relay(std::shared_ptr<Region> memory, std::function<void()> ring_daemon);

  const std::shared_ptr<Region>& memory() const { return memory_; }

  // Hands `bytes` bytes of `send` over and copies the results to `recv` (in place or disjoint),
  // until all are there, the daemon has declined, or `has_ended` says true, which is asked whenever
  // nothing comes; blocks meanwhile, and looks again after a tenth of a second at the latest.
  void Exchange(const void* send, void* recv, size_t bytes, const std::function<bool()>& has_ended);

 private:
  std::byte* Slot(uint64_t slice) const;
  void HandOver(uint64_t slice, const std::byte* from, size_t bytes);
  bool IsBack(uint64_t slice) const;
  bool AwaitBack(uint64_t slice, const std::function<bool()>& has_ended);

  const std::shared_ptr<Region> memory_;
  shm::RelayControl* const control_;
  const std::function<void()> ring_daemon_;
};

}  // namespace spccl::client
