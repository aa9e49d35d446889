#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "daemon/metrics/exposition.h"
#include "daemon/metrics/families.h"
#include "daemon/metrics/sample.h"

namespace spccl::daemon::metrics {
namespace {

double InSeconds(uint64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

class Renderer {
 public:
  std::string Render(const Sample& sample);

 private:
  void Begin(std::string_view name) { out_.Begin(FamilyOf(name)); }
  template <typename T>
  void One(std::string_view name, const T& value) {
    Begin(name);
    out_.Sample({}, value);
  }
  template <typename T>
  void Known(std::string_view name, const std::optional<T>& value) {
    if (value) One(name, *value);
  }
  // One sample for each name, in order.
  template <typename NameOfIndex, typename T, size_t N>
  void Each(std::string_view name, NameOfIndex name_of, const std::array<T, N>& values) {
    Begin(name);
    for (size_t i = 0; i < N; ++i) out_.Sample({name_of(i)}, values[i]);
  }

  // By absl::StatusCode: all that are errors, from the start, so that the first is seen to rise.
  void ByCode(std::string_view name, const std::array<uint64_t, kCodeCount>& counts);

  void Core(const CoreSample& core);
  void Operations(const CoreSample& core);
  // The pairs of operation and type that there have been; `value` of their totals.
  template <typename ValueOf>
  void ByOp(std::string_view name, const Telemetry& telemetry, ValueOf value);
  void BytesByOp(std::string_view name, const Telemetry& telemetry, uint64_t OpTotals::*bytes);
  void Waits(const CoreSample& core);
  void Sends(const CoreSample& core);
  void Codecs(const Telemetry& telemetry);
  void Links(const CoreSample& core);
  void Clients(const CoreSample& core);
  void Jobs(const CoreSample& core);
  template <typename ValueOf>
  void ByJob(std::string_view name, const CoreSample& core, ValueOf value);
  void Http(const HttpSample& http);
  void Process(const ProcessSample& process);

  Exposition out_;
};

// The batch system's number in "u1000.j17"; empty in others.
std::string_view SlurmJobOf(std::string_view job_id) {
  const size_t at = job_id.find(".j");
  return at == std::string_view::npos ? std::string_view() : job_id.substr(at + 2);
}

std::string Renderer::Render(const Sample& sample) {
  Begin("spccl_build_info");
  out_.Sample({sample.version, sample.codec_target}, uint64_t{1});
  One("spccl_healthy", uint64_t{sample.progress.healthy});
  One("spccl_progress_age_seconds", InSeconds(static_cast<uint64_t>(sample.progress.age_ns)));
  One("spccl_core_answers", uint64_t{sample.core.has_value()});
  if (sample.core) Core(*sample.core);
  Http(sample.http);
  Process(sample.process);
  return out_.text();
}

void Renderer::ByCode(std::string_view name, const std::array<uint64_t, kCodeCount>& counts) {
  Begin(name);
  for (size_t code = 1; code < kCodeCount; ++code) {
    out_.Sample({absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}, counts[code]);
  }
}

void Renderer::Core(const CoreSample& core) {
  One("spccl_draining", uint64_t{core.draining});
  One("spccl_channel_threads", uint64_t{core.channels});
  Begin("spccl_events_total");
  for (const auto& [kind, count] : core.events) out_.Sample({kind}, count);
  Operations(core);
  Waits(core);
  Sends(core);
  Codecs(core.telemetry);
  Links(core);
  Clients(core);
  Jobs(core);
}

template <typename ValueOf>
void Renderer::ByOp(std::string_view name, const Telemetry& telemetry, ValueOf value) {
  Begin(name);
  for (size_t kind = 0; kind < kOpKindCount; ++kind) {
    for (size_t dtype = 0; dtype < kDTypeCount; ++dtype) {
      const OpTotals& totals = telemetry.ops[kind][dtype];
      if (totals.ok + totals.failed == 0) continue;
      value(NameOf(static_cast<OpKind>(kind)), NameOf(static_cast<DType>(dtype)), totals);
    }
  }
}

void Renderer::BytesByOp(std::string_view name, const Telemetry& telemetry,
                         uint64_t OpTotals::*bytes) {
  ByOp(name, telemetry,
       [this, bytes](std::string_view op, std::string_view dtype, const OpTotals& totals) {
         out_.Sample({op, dtype}, totals.*bytes);
       });
}

void Renderer::Operations(const CoreSample& core) {
  const Telemetry& telemetry = core.telemetry;
  ByOp("spccl_operations_total", telemetry,
       [this](std::string_view op, std::string_view dtype, const OpTotals& totals) {
         out_.Sample({op, dtype, "ok"}, totals.ok);
         out_.Sample({op, dtype, "failed"}, totals.failed);
       });
  ByCode("spccl_operation_errors_total", telemetry.op_errors);
  BytesByOp("spccl_operation_payload_bytes_total", telemetry, &OpTotals::payload_bytes);
  One("spccl_operations_running", core.running_ops);
  One("spccl_operations_waiting", core.waiting_ops);
}

void Renderer::Waits(const CoreSample& core) {
  const Telemetry& telemetry = core.telemetry;
  Each(
      "spccl_operation_duration_seconds", [](size_t i) { return NameOf(static_cast<OpKind>(i)); },
      telemetry.durations);
  Begin("spccl_operation_wait_seconds");
  out_.Sample({"ranks"}, telemetry.waits[static_cast<size_t>(Cause::kRanks)]);
  out_.Sample({"turn"}, telemetry.waits[static_cast<size_t>(Cause::kTurn)]);
  out_.Sample({"channel"}, core.channel_waits);
  Each(
      "spccl_operation_phase_seconds", [](size_t i) { return kOpPhaseNames[i]; }, telemetry.phases);
}

void Renderer::Sends(const CoreSample& core) {
  BytesByOp("spccl_send_dense_bytes_total", core.telemetry, &OpTotals::dense_bytes);
  BytesByOp("spccl_send_wire_bytes_total", core.telemetry, &OpTotals::wire_bytes);
  Each(
      "spccl_sends_total", [](size_t i) { return NameOf(static_cast<Format>(i)); },
      core.counters.sends_by_format);
  Begin("spccl_send_decisions_total");
  for (size_t phase = 0; phase < kPhaseCount; ++phase) {
    for (size_t reason = 0; reason < policy::kReasonCount; ++reason) {
      out_.Sample(
          {NameOf(static_cast<Phase>(phase)), policy::NameOf(static_cast<policy::Reason>(reason))},
          core.counters.decisions[phase][reason]);
    }
  }
  One("spccl_input_density_ratio", core.telemetry.input_density);
  One("spccl_result_density_ratio", core.telemetry.result_density);
}

void Renderer::Codecs(const Telemetry& telemetry) {
  const auto each = [this, &telemetry](std::string_view name, auto value) {
    Begin(name);
    for (size_t format = 0; format < kFormatCount; ++format) {
      const std::string_view format_name = NameOf(static_cast<Format>(format));
      out_.Sample({"encode", format_name}, value(telemetry.encoded[format]));
      out_.Sample({"take_in", format_name}, value(telemetry.taken_in[format]));
    }
  };
  each("spccl_codec_dense_bytes_total",
       [](const runtime::CodecWork& work) { return work.dense_bytes; });
  each("spccl_codec_seconds_total",
       [](const runtime::CodecWork& work) { return InSeconds(work.ns); });
}

void Renderer::Links(const CoreSample& core) {
  const auto name_of = [](size_t i) { return policy::NameOf(static_cast<policy::Link>(i)); };
  Each("spccl_link_sends_total", name_of, core.telemetry.sends_by_link);
  Each("spccl_link_wire_bytes_total", name_of, core.telemetry.wire_bytes_by_link);
  Begin("spccl_gpus");
  out_.Sample({"usable"}, core.gpus_usable);
  out_.Sample({"failed"}, core.gpus_failed);
  One("spccl_gpu_host_path_bytes_total", core.telemetry.gpu_host_path_bytes);
  One("spccl_peers", uint64_t{core.peers});
  const auto each = [this, &core](std::string_view name, double LinkSample::*at) {
    Begin(name);
    for (const auto& [peer, link] : core.links) {
      if (link.*at > 0) out_.Sample({peer}, link.*at);
    }
  };
  each("spccl_link_round_trip_seconds", &LinkSample::round_trip_seconds);
  each("spccl_link_bandwidth_bytes_per_second", &LinkSample::bytes_per_second);
}

void Renderer::Clients(const CoreSample& core) {
  One("spccl_sessions", uint64_t{core.sessions});
  One("spccl_sessions_broken_total", core.telemetry.broken_sessions);
  Begin("spccl_communicators");
  for (const auto& [state, count] : core.communicators) out_.Sample({state}, count);
  ByCode("spccl_communicator_failures_total", core.telemetry.comm_failures);
  const auto buffers = [this, &core](std::string_view name, uint64_t BufferTally::Count::*at) {
    Begin(name);
    for (size_t i = 0; i < kBufferKindCount; ++i) {
      const auto kind = static_cast<BufferKind>(i);
      out_.Sample({NameOf(kind)}, core.buffers.Of(kind).*at);
    }
  };
  buffers("spccl_buffers", &BufferTally::Count::buffers);
  buffers("spccl_buffer_bytes", &BufferTally::Count::bytes);
  Each(
      "spccl_quota_refusals_total", [](size_t i) { return NameOf(static_cast<Quota>(i)); },
      core.telemetry.quota_refusals);
  One("spccl_mapped_bytes", core.mapped_bytes);
}

template <typename ValueOf>
void Renderer::ByJob(std::string_view name, const CoreSample& core, ValueOf value) {
  Begin(name);
  for (const JobSample& job : core.jobs) out_.Sample({job.id}, value(job));
}

void Renderer::Jobs(const CoreSample& core) {
  Begin("spccl_job_info");
  for (const JobSample& job : core.jobs) {
    out_.Sample({job.id, absl::StrCat(job.uid), SlurmJobOf(job.id)}, uint64_t{1});
  }
  ByJob("spccl_job_sessions", core, [](const JobSample& job) { return uint64_t{job.sessions}; });
  ByJob("spccl_job_communicators", core,
        [](const JobSample& job) { return uint64_t{job.communicators}; });
  ByJob("spccl_job_buffer_bytes", core, [](const JobSample& job) { return job.buffer_bytes; });
  ByJob("spccl_job_weight", core, [](const JobSample& job) { return job.weight; });
  ByJob("spccl_job_operations_total", core, [](const JobSample& job) { return job.operations; });
  ByJob("spccl_job_payload_bytes_total", core,
        [](const JobSample& job) { return job.payload_bytes; });
  ByJob("spccl_job_wire_bytes_total", core, [](const JobSample& job) { return job.wire_bytes; });
  ByJob("spccl_job_channel_seconds_total", core,
        [](const JobSample& job) { return job.channel_seconds; });
  One("spccl_jobs_left_out", core.jobs_left_out);
}

void Renderer::Http(const HttpSample& http) {
  Begin("spccl_metrics_requests_total");
  for (const auto& [code, count] : http.answers) out_.Sample({absl::StrCat(code)}, count);
  One("spccl_metrics_connections_dropped_total", http.dropped);
}

void Renderer::Process(const ProcessSample& process) {
  Known("process_cpu_seconds_total", process.cpu_seconds);
  Known("process_resident_memory_bytes", process.resident_bytes);
  Known("process_virtual_memory_bytes", process.virtual_bytes);
  Known("process_threads", process.threads);
  Known("process_open_fds", process.open_fds);
  Known("process_max_fds", process.max_fds);
  Known("process_start_time_seconds", process.start_unix_seconds);
}

}  // namespace

std::string Render(const Sample& sample) {
  return Renderer().Render(sample);
}

}  // namespace spccl::daemon::metrics
