// Whether JSON is a trace in Chrome's event format, as strict as we write it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace spccl::testing {

// What is wrong with it; empty: nothing. Complete events ("X") of one track must be in order of ts
// and nest; besides them there are metadata ("M") and instants ("i") only.
inline std::string FaultOfTrace(const nlohmann::json& trace) {
  // Times are microseconds with a fraction: a nanosecond is lost in rounding.
  constexpr double kSlack = 0.002;
  if (!trace.contains("traceEvents") || !trace["traceEvents"].is_array()) return "no traceEvents";
  std::map<std::pair<int64_t, int64_t>, std::vector<double>>
      open;  // by track: ends, the outer first
  std::map<std::pair<int64_t, int64_t>, double> last;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    const std::string text = event.dump();
    for (const char* key : {"ph", "name", "pid", "tid"}) {
      if (!event.contains(key)) return std::string("no ") + key + ": " + text;
    }
    if (event["ph"] == "M") continue;
    if (!event.contains("ts") || !event["ts"].is_number() || event["ts"] < 0) {
      return "no ts: " + text;
    }
    if (event["ph"] == "i") continue;
    if (event["ph"] != "X") return "another ph: " + text;
    if (!event.contains("dur") || !event["dur"].is_number() || event["dur"] < 0) {
      return "no dur: " + text;
    }
    const std::pair<int64_t, int64_t> track(event["pid"], event["tid"]);
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    if (last.contains(track) && begin < last[track]) return "before the one before it: " + text;
    last[track] = begin;
    std::vector<double>& ends = open[track];
    while (!ends.empty() && ends.back() <= begin + kSlack) ends.pop_back();
    if (!ends.empty() && end > ends.back() + kSlack) return "ends after what holds it: " + text;
    ends.push_back(end);
  }
  return "";
}

}  // namespace spccl::testing
