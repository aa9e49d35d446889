// Why a communicator does not go on: two flight records of it, a moment apart, in words. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::ctl {

struct Explanation {
  std::string verdict;             // one sentence
  std::vector<std::string> lines;  // what it rests on
  // "idle", "forming", "failed", "not-posted", "queued", "wait-frame", "wait-room", "wait-slice",
  // "runs"
  std::string phase;
  std::vector<uint32_t>
      late_ranks;       // that others wait for, or, of those that exchange data, that are not done
  std::string node;     // where to look next; empty: here
  bool moving = false;  // it went on between the two looks

  std::string Text() const;
  nlohmann::ordered_json Json() const;
};

// `first` was taken before `second`, of the same communicator by the same daemon; both with the
// answers of its other nodes. Of a record that was kept when the communicator failed both are the
// same.
Explanation Explain(const v1::FlightRecord& first, const v1::FlightRecord& second);

}  // namespace spccl::ctl
