// What the metrics see.
#include <string>
#include <utility>

#include "daemon/engine.h"

namespace spccl::daemon {

metrics::CoreSample Engine::MakeCoreSample() const {
  metrics::CoreSample sample;
  sample.draining = draining_;
  sample.channels = scheduler_->channels();
  sample.sessions = static_cast<uint32_t>(registry_.sessions.size());
  sample.running_ops = registry_.running_ops;
  for (size_t state = 0; state < Communicator::kStateCount; ++state) {
    sample.communicators[NameOf(static_cast<Communicator::State>(state))] = 0;
  }
  for (const auto& [id, entry] : registry_.comms) {
    sample.waiting_ops += entry->comm.queued_ops();
    ++sample.communicators[NameOf(entry->comm.state())];
  }
  sample.buffers = registry_.buffers;
  sample.mapped_bytes = reaper_.mapped_bytes();
  sample.counters = registry_.counters;
  sample.telemetry = registry_.telemetry;
  sample.channel_waits = scheduler_->waits().Read();
  sample.events = events_.counts();
  if (hooks_.gpus != nullptr) {
    for (size_t i = 0; i < hooks_.gpus->count(); ++i) {
      ++(hooks_.gpus->at(i).status().ok() ? sample.gpus_usable : sample.gpus_failed);
    }
  }
  sample.peers = static_cast<uint32_t>(registry_.nodes_up.size());
  for (const auto& [node, info] : registry_.nodes_up) {
    const LinkSpeed speed = nodes_->SpeedOf(node);
    metrics::LinkSample& link = sample.links[info.address];
    link.round_trip_seconds = static_cast<double>(speed.round_trip_ns) / 1e9;
    link.bytes_per_second = speed.bytes_per_second;
  }
  for (const auto& [id, job] : registry_.jobs) {
    if (sample.jobs.size() == metrics::kMostJobs) {
      ++sample.jobs_left_out;
      continue;
    }
    sample.jobs.push_back({.id = id,
                           .uid = job.uid,
                           .sessions = job.sessions,
                           .communicators = job.communicators,
                           .buffer_bytes = job.buffer_bytes,
                           .weight = job.share.weight,
                           .operations = job.counters.ops,
                           .payload_bytes = job.counters.payload_bytes,
                           .wire_bytes = job.counters.wire_bytes,
                           .channel_seconds = static_cast<double>(*job.channel_time) / 1e9});
  }
  return sample;
}

}  // namespace spccl::daemon
