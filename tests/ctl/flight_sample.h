// Made-up flight records.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "proto/spccl/v1/flight.pb.h"

namespace spccl::ctl {

constexpr int64_t kMilli = 1'000'000;
constexpr int64_t kNow = 100'000 * kMilli;  // of the record's node

// One node's ranks 0 to `ranks` - 1, pids 100, 101, ..., which have posted all operations below 7.
inline v1::FlightRecord SampleRecord(uint32_t ranks) {
  v1::FlightRecord record;
  record.set_boot_id("00000000000000aa");
  record.set_comm_id(3);
  record.set_job_id("job-1");
  record.set_uid(1000);
  record.set_ranks(ranks);
  record.set_state("ready");
  record.set_now_ns(kNow);
  record.set_unix_ns(1'700'000'000'000'000'000);
  record.set_next_sequence(7);
  record.set_channels(2);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    v1::FlightRank& member = *record.add_members();
    member.set_rank(rank);
    member.set_pid(static_cast<int32_t>(100 + rank));
    member.set_next_sequence(7);
    member.set_process("sleeping");
  }
  return record;
}

// Posts at so many milliseconds before now, by rank.
inline void Post(v1::FlightRecord* record, v1::FlightOp* op,
                 std::initializer_list<std::pair<uint32_t, int64_t>> posts) {
  for (const auto& [rank, ago_ms] : posts) {
    v1::FlightPost& post = *op->add_posts();
    post.set_rank(rank);
    post.set_posted_ns(kNow - ago_ms * kMilli);
    for (v1::FlightRank& member : *record->mutable_members()) {
      if (member.rank() == rank) member.set_next_sequence(op->sequence() + 1);
    }
  }
}

// Operation 7 waits, posted by some.
inline v1::FlightOp* AddWaiting(v1::FlightRecord* record,
                                std::initializer_list<std::pair<uint32_t, int64_t>> posts) {
  v1::FlightOp* const op = record->add_waiting();
  op->set_sequence(7);
  op->set_what("all_reduce count=8 float32 sum");
  Post(record, op, posts);
  return op;
}

// Operation 7 runs since `ago_ms` before now.
inline v1::FlightOp* SetRunning(v1::FlightRecord* record, int64_t ago_ms,
                                std::initializer_list<std::pair<uint32_t, int64_t>> posts) {
  v1::FlightOp* const op = record->mutable_running();
  op->set_sequence(7);
  op->set_what("all_reduce count=8 float32 sum");
  op->set_algorithm("two-level-ring");
  op->set_began_ns(kNow - ago_ms * kMilli);
  Post(record, op, posts);
  record->set_next_sequence(8);
  record->set_progress(40);
  record->set_taken(2);
  record->set_total(6);
  return op;
}

inline v1::FlightDoing* AddDoing(v1::FlightRecord* record, v1::FlightDoing::Kind kind,
                                 uint32_t rank, uint32_t peer, int64_t ago_ms) {
  v1::FlightDoing* const doing = record->add_doing();
  doing->set_kind(kind);
  doing->set_rank(rank);
  doing->set_peer(peer);
  doing->set_step("reduce-store");
  doing->set_count(4);
  doing->set_since_ns(kNow - ago_ms * kMilli);
  return doing;
}

// An operation that has ended, at so many milliseconds before now.
inline v1::FlightOp* AddEnded(v1::FlightRecord* record, uint64_t sequence, int64_t began_ms,
                              int64_t ended_ms,
                              std::initializer_list<std::pair<uint32_t, int64_t>> posts) {
  v1::FlightOp* const op = record->add_ended();
  op->set_sequence(sequence);
  op->set_what("all_reduce count=8 float32 sum");
  op->set_algorithm("local");
  op->set_began_ns(kNow - began_ms * kMilli);
  op->set_ended_ns(kNow - ended_ms * kMilli);
  for (const auto& [rank, ago_ms] : posts) {
    v1::FlightPost& post = *op->add_posts();
    post.set_rank(rank);
    post.set_posted_ns(kNow - ago_ms * kMilli);
  }
  return op;
}

// node-a (here) with ranks 0 and 1, node-b with ranks 2 and 3, as `here` (0 or 1) sees them.
inline v1::FlightRecord SampleOfTwoNodes(int here) {
  v1::FlightRecord record = SampleRecord(4);
  record.set_node(here == 0 ? "node-a" : "node-b");
  record.set_comm_id(here == 0 ? 3 : 9);
  record.set_boot_id(here == 0 ? "00000000000000aa" : "00000000000000bb");
  for (int i = 0; i < 2; ++i) {
    v1::FlightNode& node = *record.add_nodes();
    node.set_name(i == 0 ? "node-a" : "node-b");
    if (i != here) {
      node.set_address(i == 0 ? "10.0.0.1:7777" : "10.0.0.2:7777");
      node.set_route("tcp/eth0");
      node.set_round_trip_seconds(0.0002);
      node.set_link_bytes_per_second(117.6e6);
      node.set_asked(here == 0);
    }
    for (uint32_t rank : {2 * i, 2 * i + 1}) {
      node.add_ranks(rank);
      v1::FlightRank& member = *record.mutable_members(static_cast<int>(rank));
      if (i == here) continue;
      member.set_node(node.name());
      member.set_next_sequence(0);
      member.clear_process();
    }
  }
  return record;
}

// Lets node-b's record be its answer to node-a.
inline void Answer(v1::FlightRecord* record, const v1::FlightRecord& peer) {
  record->mutable_nodes(1)->set_answered(true);
  *record->add_peers() = peer;
}

}  // namespace spccl::ctl
