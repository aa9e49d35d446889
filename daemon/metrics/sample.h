// What the metrics are made of: the daemon's numbers at one time, as plain values.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control.h"
#include "daemon/metrics/buffer_tally.h"
#include "daemon/metrics/histogram.h"
#include "daemon/metrics/telemetry.h"
#include "daemon/progress.h"

namespace spccl::daemon::metrics {

// Of a daemon with more jobs, the others have no series.
inline constexpr size_t kMostJobs = 256;

struct JobSample {
  std::string id;  // "u1000.j17"
  uid_t uid = 0;
  uint32_t sessions = 0, communicators = 0;
  uint64_t buffer_bytes = 0, weight = 0;
  uint64_t operations = 0, payload_bytes = 0, wire_bytes = 0;
  double channel_seconds = 0;
};

struct LinkSample {
  double round_trip_seconds = 0, bytes_per_second = 0;  // 0: not measured
};

// What the core thread knows.
struct CoreSample {
  bool draining = false;
  uint32_t channels = 0, sessions = 0;
  uint64_t running_ops = 0, waiting_ops = 0;
  std::map<std::string_view, uint64_t> communicators;  // by state, all there are
  BufferTally buffers;
  uint64_t mapped_bytes = 0;
  Counters counters;  // of the whole
  Telemetry telemetry;
  Histogram channel_waits{kSecondsBounds};
  std::map<std::string, uint64_t> events;  // by kind
  uint64_t gpus_usable = 0, gpus_failed = 0;
  uint32_t peers = 0;
  std::map<std::string, LinkSample> links;  // by the address of the peer
  std::vector<JobSample> jobs;              // at most kMostJobs
  uint64_t jobs_left_out = 0;
};

// What the kernel says of this process; nothing where it does not.
struct ProcessSample {
  std::optional<double> cpu_seconds, start_unix_seconds;
  std::optional<uint64_t> resident_bytes, virtual_bytes, threads, open_fds, max_fds;
};
ProcessSample ReadProcess();

// Of the endpoint itself.
struct HttpSample {
  std::map<int, uint64_t> answers;  // by HTTP status
  uint64_t dropped = 0;
};

struct Sample {
  std::string version, codec_target;
  Progress progress;
  std::optional<CoreSample> core;  // nothing: the core thread did not answer
  HttpSample http;
  ProcessSample process;
};

// In Prometheus' text format. What is not known is left out: it is never told as zero.
std::string Render(const Sample& sample);

}  // namespace spccl::daemon::metrics
