#include "daemon/metrics/families.h"

#include <algorithm>
#include <vector>

#include "base/status.h"

namespace spccl::daemon::metrics {

std::span<const Family> Families() {
  using enum Type;
  static const auto* const families = new std::vector<Family>{
      // The daemon.
      {"spccl_build_info",
       kGauge,
       {"version", "codec_target"},
       "1; the version, and the instructions that codecs use"},
      {"spccl_healthy", kGauge, {}, "1: work that is due moves; 0: it does not"},
      {"spccl_progress_age_seconds",
       kGauge,
       {},
       "How long the part of the daemon that has rested longest, with work due, has"},
      {"spccl_core_answers",
       kGauge,
       {},
       "1: the core thread has told what follows; 0: it did not answer in time, and "
       "what it alone knows is left out"},
      {"spccl_draining", kGauge, {}, "1: new sessions and communicators are refused"},
      {"spccl_channel_threads", kGauge, {}, "Threads that move data"},
      {"spccl_events_total",
       kCounter,
       {"kind"},
       "What happened, by kind, as spcclctl events shows it"},

      // Operations. An operation counts when it has ended.
      {"spccl_operations_total",
       kCounter,
       {"op", "dtype", "outcome"},
       "Operations of communicators that have ended, ok or failed"},
      {"spccl_operation_errors_total",
       kCounter,
       {"code"},
       "Operations that failed, also such as had not started, by the error's code"},
      {"spccl_operation_payload_bytes_total",
       kCounter,
       {"op", "dtype"},
       "Bytes of this node's ranks' inputs, of operations that went well"},
      {"spccl_operations_running", kGauge, {}, "Operations that run now"},
      {"spccl_operations_waiting",
       kGauge,
       {},
       "Operations that some rank has called and that have not started"},
      {"spccl_operation_duration_seconds",
       kHistogram,
       {"op"},
       "From an operation's start, with all ranks there, to its end"},
      {"spccl_operation_wait_seconds",
       kHistogram,
       {"cause"},
       "What an operation waited for before data moved: ranks (from the first of this node's "
       "to the last), turn (other operations of its communicator), channel (a channel thread "
       "to take its first slice; not where the core thread runs it at once)"},
      {"spccl_operation_phase_seconds",
       kHistogram,
       {"phase"},
       "Where the time of an operation that sent frames went: encode, send and reduce, over "
       "all threads; receive_wait and room_wait, over all participants"},

      // Sends, which are frames; the local plan has none.
      {"spccl_send_dense_bytes_total",
       kCounter,
       {"op", "dtype"},
       "Bytes that sends would have been, all dense"},
      {"spccl_send_wire_bytes_total",
       kCounter,
       {"op", "dtype"},
       "Bytes that sends were, headers included"},
      {"spccl_sends_total", kCounter, {"format"}, "Frames sent, by format"},
      {"spccl_send_decisions_total", kCounter, {"phase", "reason"}, "Why sends had their format"},
      {"spccl_input_density_ratio",
       kHistogram,
       {},
       "Share of nonzeros in an operation's input, where it was counted; an estimate where the one "
       "before went dense"},
      {"spccl_result_density_ratio",
       kHistogram,
       {},
       "Share of nonzeros in an operation's result, where it was counted"},
      {"spccl_codec_dense_bytes_total",
       kCounter,
       {"work", "format"},
       "Dense bytes that codecs have worked through: encode makes frames, take_in "
       "combines or decodes them"},
      {"spccl_codec_seconds_total",
       kCounter,
       {"work", "format"},
       "Time of that work, over all threads; the bytes over it are the speed of a "
       "thread"},

      // Links.
      {"spccl_link_sends_total",
       kCounter,
       {"link"},
       "Frames sent within the node (intra) and to others (inter)"},
      {"spccl_link_wire_bytes_total", kCounter, {"link"}, "Bytes of these frames"},
      {"spccl_gpus",
       kGauge,
       {"state"},
       "GPUs that the daemon uses (usable), and those that have become of no use until it is "
       "started anew (failed)"},
      {"spccl_gpu_host_path_bytes_total",
       kCounter,
       {},
       "Bytes of buffers on GPUs that went over pinned memory and the host's threads, beside the "
       "GPUs' links"},
      {"spccl_peers", kGauge, {}, "Other nodes' daemons that are connected"},
      {"spccl_link_round_trip_seconds",
       kGauge,
       {"peer"},
       "Round trip of few bytes to a node, as last measured"},
      {"spccl_link_bandwidth_bytes_per_second",
       kGauge,
       {"peer"},
       "Rate at which the link to a node took data, where this node has measured it"},

      // What clients hold.
      {"spccl_sessions", kGauge, {}, "Client processes that are connected"},
      {"spccl_sessions_broken_total",
       kCounter,
       {},
       "Sessions that the daemon ended because the client broke the protocol, or was silent for "
       "too long after it had connected"},
      {"spccl_communicators", kGauge, {"state"}, "Communicators, by state"},
      {"spccl_communicator_failures_total",
       kCounter,
       {"code"},
       "Communicators that failed, by the error's code"},
      {"spccl_buffers", kGauge, {"kind"}, "Registered buffers, by kind"},
      {"spccl_buffer_bytes", kGauge, {"kind"}, "Bytes of these buffers"},
      {"spccl_quota_refusals_total",
       kCounter,
       {"quota"},
       "Requests that were refused because the job would have passed a quota"},
      {"spccl_mapped_bytes", kGauge, {}, "Bytes of clients' shared memory that the daemon maps"},

      // Jobs that are there now.
      {"spccl_job_info",
       kGauge,
       {"job_id", "uid", "slurm_job_id"},
       "1; what to join the other series of a job with"},
      {"spccl_job_sessions", kGauge, {"job_id"}, "A job's sessions"},
      {"spccl_job_communicators", kGauge, {"job_id"}, "A job's communicators"},
      {"spccl_job_buffer_bytes", kGauge, {"job_id"}, "Bytes of a job's registered buffers"},
      {"spccl_job_weight", kGauge, {"job_id"}, "A job's weight against the others"},
      {"spccl_job_operations_total", kCounter, {"job_id"}, "Operations of a job that have ended"},
      {"spccl_job_payload_bytes_total", kCounter, {"job_id"}, "Bytes of a job's inputs"},
      {"spccl_job_wire_bytes_total", kCounter, {"job_id"}, "Bytes of a job's frames"},
      {"spccl_job_channel_seconds_total",
       kCounter,
       {"job_id"},
       "Processor time of channel threads that a job has had, which jobs share by weight"},
      {"spccl_jobs_left_out",
       kGauge,
       {},
       "Jobs beyond the first 256, of which there are no series"},

      // This endpoint, and the process.
      {"spccl_metrics_requests_total",
       kCounter,
       {"code"},
       "Answers of this endpoint, by HTTP status"},
      {"spccl_metrics_connections_dropped_total",
       kCounter,
       {},
       "Connections that ended without an answer: too slow, or pushed out by newer "
       "ones"},
      {"process_cpu_seconds_total", kCounter, {}, "User and system time of the daemon"},
      {"process_resident_memory_bytes",
       kGauge,
       {},
       "Resident memory of the daemon; clients' memory that it has touched counts. What it keeps "
       "between operations (frames: at most 64 MiB) goes back to the node with the last "
       "communicator"},
      {"process_virtual_memory_bytes", kGauge, {}, "Address space of the daemon"},
      {"process_threads", kGauge, {}, "Threads of the daemon"},
      {"process_open_fds", kGauge, {}, "Open descriptors of the daemon"},
      {"process_max_fds",
       kGauge,
       {},
       "The limit of these: `LimitNOFILE` less what is kept for descriptors that clients pass, a "
       "quarter, at most 1,277"},
      {"process_start_time_seconds", kGauge, {}, "When the daemon started, in seconds since 1970"}};
  return *families;
}

const Family& FamilyOf(std::string_view name) {
  const auto families = Families();
  const auto found = std::find_if(families.begin(), families.end(),
                                  [name](const Family& family) { return family.name == name; });
  SPCCL_CHECK(found != families.end());
  return *found;
}

}  // namespace spccl::daemon::metrics
