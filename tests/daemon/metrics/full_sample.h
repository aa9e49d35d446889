// A sample in which everything is known, for tests.
#pragma once

#include "daemon/metrics/sample.h"

namespace spccl::daemon::metrics {

inline Sample FullSample() {
  Sample sample;
  sample.version = "1.2.3";
  sample.codec_target = "AVX3";
  sample.progress = {.age_ns = 5'000'000, .healthy = true, .detail = ""};
  CoreSample& core = sample.core.emplace();
  core.channels = 4;
  core.sessions = 2;
  core.communicators = {{"forming", 0}, {"connecting", 0}, {"ready", 1}, {"failed", 0}};
  core.buffers.Add(BufferKind::kMapped, 4096);
  core.buffers.Add(BufferKind::kAttach, 100);
  core.events = {{"comm-ready", 1}, {"session-open", 2}};
  core.gpus_usable = 7;
  core.gpus_failed = 1;
  core.peers = 1;
  core.links = {{"node2:7440", {.round_trip_seconds = 3e-5, .bytes_per_second = 1.25e9}}};
  core.jobs.push_back({.id = "u1000.j17",
                       .uid = 1000,
                       .sessions = 2,
                       .communicators = 1,
                       .buffer_bytes = 4196,
                       .operations = 3,
                       .payload_bytes = 300,
                       .wire_bytes = 30,
                       .channel_seconds = 0.25});
  runtime::OpResult result;
  result.stats.dense_bytes = 400;
  result.stats.wire_bytes = 100;
  result.stats.input_nnz = 1;
  result.stats.input_elements = 100;
  core.telemetry.AddOperation({}, {.ended_ns = 1'000'000}, result, 100);
  sample.http.answers = {{200, 7}};
  sample.process = {.cpu_seconds = 1.5,
                    .start_unix_seconds = 1.7e9,
                    .resident_bytes = 1 << 20,
                    .virtual_bytes = 1 << 30,
                    .threads = 9,
                    .open_fds = 30,
                    .max_fds = 1024};
  return sample;
}

}  // namespace spccl::daemon::metrics
