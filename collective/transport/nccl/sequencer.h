// The one order of all groups of a world, which its root keeps. Pure.
//
// A group is some transfers that NCCL does at once. All ranks issue the groups that they have a
// part in by ascending number; and so, whatever a group waits for, it is no later group: see
// docs/adr/0021-nccl-transport.md, Order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "collective/transport/nccl/wire.h"

namespace spccl::transport::nccl {

class Sequencer {
 public:
  struct Options {
    // Of a group, for each rank and direction. One transfer always fits.
    size_t most_transfers = 32;
    uint64_t most_bytes = uint64_t{64} << 20;
    // Groups that are not done: enough that none waits for the word to go round, and few enough
    // that what becomes ready meanwhile goes together.
    size_t most_open_groups = 4;
  };
  struct Group {
    uint64_t number = 0;
    std::vector<Transfer> transfers;
  };

  Sequencer(const Options& options, std::vector<uint32_t> node_of_rank)
      : options_(options), node_of_rank_(std::move(node_of_rank)) {}

  // Ranks are in range and not equal. Of two ranks, transfers keep their order.
  void Add(const Transfer& transfer) { waiting_.push_back(transfer); }
  // The next group, if there is something for it and not too many are open.
  std::optional<Group> Next();
  // The node's ranks are through with their part. An error: that was not to be.
  absl::Status Done(uint64_t number, uint32_t node);

  size_t waiting() const { return waiting_.size(); }
  size_t open_groups() const { return open_.size(); }

 private:
  const Options options_;
  const std::vector<uint32_t> node_of_rank_;
  std::deque<Transfer> waiting_;
  std::map<uint64_t, std::set<uint32_t>> open_;  // who is not done yet
  uint64_t last_ = 0;
};

}  // namespace spccl::transport::nccl
