// A flight record, made easy to ask. Borrowed: the record stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/spccl/v1/flight.pb.h"

namespace spccl::ctl {

class FlightView {
 public:
  explicit FlightView(const v1::FlightRecord& record) : record_(&record) {}

  const v1::FlightRecord& record() const { return *record_; }
  // "node-b"; "this node" where it has no name.
  std::string NodeName() const;

  const v1::FlightRank* Member(uint32_t rank) const;
  // "rank 2 (pid 123)", "rank 2 (pid 123 on node-b)"
  std::string NameOf(uint32_t rank) const;
  // "rank 2", "ranks 2, 3 and 5"
  static std::string NamesOf(const std::vector<uint32_t>& ranks);
  // The ranks of this node that use the communicator still.
  std::vector<uint32_t> LocalRanks() const;

  // The node of a rank; nullptr: all ranks are on one.
  const v1::FlightNode* NodeOf(uint32_t rank) const;

  // The operation that this node is at: the one that runs, else the next to begin.
  uint64_t At() const;
  bool Runs() const { return record_->has_running(); }
  // What is known of the operation that it is at; nullptr: nobody has posted it here.
  const v1::FlightOp* Current() const;
  // Of this node's ranks, those that have not posted the operation that it is at.
  std::vector<uint32_t> NotPosted() const;

  // Seconds between an earlier time of this node and the record's.
  double SecondsSince(int64_t then_ns) const;

 private:
  const v1::FlightRecord* record_;
};

// "tcp/eth0, 0.2 ms round trip, 941 Mbit/s"; empty where nothing is known.
std::string DescribeLink(const v1::FlightNode& node);

// When ranks of one node post an operation, one is the last: how often, and how long after the
// first.
struct Lateness {
  uint32_t rank = 0;
  uint32_t times_last = 0, operations = 0;
  double median_seconds = 0, most_seconds = 0;  // behind the first, in all operations
};
// By rank, of this node's; empty where fewer than two ranks post here.
std::vector<Lateness> LatenessOf(const v1::FlightRecord& record);

}  // namespace spccl::ctl
