#include "daemon/control_service_convert.h"

#include <cinttypes>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/join_check.h"
#include "kernels/format.h"

namespace spccl::daemon {
namespace {

constexpr double kNanosPerSecond = 1e9;

// The messages' codes are the core's plus one: 0 is "unspecified" there.
static_assert(v1::ALGORITHM_AUTO == static_cast<int>(policy::Algorithm::kAuto) + 1);
static_assert(v1::ALGORITHM_LOCAL == static_cast<int>(policy::Algorithm::kLocal) + 1);
static_assert(v1::ALGORITHM_RING == static_cast<int>(policy::Algorithm::kRing) + 1);
static_assert(v1::ALGORITHM_TWO_LEVEL_RING ==
              static_cast<int>(policy::Algorithm::kTwoLevelRing) + 1);
static_assert(v1::ALGORITHM_RECURSIVE_DOUBLING ==
              static_cast<int>(policy::Algorithm::kRecursiveDoubling) + 1);
static_assert(v1::ALGORITHM_HALVING_DOUBLING ==
              static_cast<int>(policy::Algorithm::kHalvingDoubling) + 1);
static_assert(v1::ALGORITHM_SPLIT == static_cast<int>(policy::Algorithm::kSplit) + 1);
static_assert(v1::ALGORITHM_DIRECT == static_cast<int>(policy::Algorithm::kDirect) + 1);
static_assert(v1::ALGORITHM_TREE == static_cast<int>(policy::Algorithm::kTree) + 1);
static_assert(v1::CODEC_AUTO == static_cast<int>(policy::Codec::kAuto) + 1);
static_assert(v1::CODEC_DENSE == static_cast<int>(policy::Codec::kDense) + 1);
static_assert(v1::CODEC_PICI == static_cast<int>(policy::Codec::kPici) + 1);
static_assert(v1::CODEC_PICI_COLUMN == static_cast<int>(policy::Codec::kPiciColumn) + 1);
static_assert(v1::CODEC_COO == static_cast<int>(policy::Codec::kCoo) + 1);
static_assert(v1::CODEC_GAP == static_cast<int>(policy::Codec::kGap) + 1);

void Name(std::string_view key, uint64_t value, v1::NamedCount* to) {
  to->set_key(std::string(key));
  to->set_value(value);
}

void FillCounters(const Counters& from, v1::Counters* to) {
  to->set_ops(from.ops);
  to->set_failed_ops(from.failed_ops);
  to->set_dense_bytes(from.dense_bytes);
  to->set_wire_bytes(from.wire_bytes);
  to->set_payload_bytes(from.payload_bytes);
  to->set_busy_ns(from.busy_ns);
  for (int code = 0; code < kFormatCount; ++code) {
    Name(NameOf(static_cast<Format>(code)), from.sends_by_format[code], to->add_sends_by_format());
  }
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    for (int reason = 0; reason < policy::kReasonCount; ++reason) {
      const uint64_t count = from.decisions[phase][reason];
      if (count == 0) continue;
      std::string name(NameOf(static_cast<Phase>(phase)));
      name.append("/").append(policy::NameOf(static_cast<policy::Reason>(reason)));
      Name(name, count, to->add_decisions());
    }
  }
  to->set_last_input_nnz(from.last_input_nnz);
  to->set_last_input_elements(from.last_input_elements);
  to->set_last_result_nnz(from.last_result_nnz);
  to->set_last_result_elements(from.last_result_elements);
  to->set_encode_ns(from.encode_ns);
  to->set_send_ns(from.send_ns);
  to->set_reduce_ns(from.reduce_ns);
  to->set_receive_wait_ns(from.receive_wait_ns);
  to->set_room_wait_ns(from.room_wait_ns);
}

void FillFormats(const runtime::SendStepStats& step, v1::SendStep* to) {
  for (int code = 0; code < kFormatCount; ++code) {
    const std::string_view name = NameOf(static_cast<Format>(code));
    if (step.formats[code] != 0) Name(name, step.formats[code], to->add_formats());
    if (step.runners_up[code] != 0) Name(name, step.runners_up[code], to->add_runners_up());
  }
  to->set_encode_ns(step.encode_ns);
  to->set_wire_ns(step.wire_ns);
  if (step.forecasts == 0) return;
  v1::Forecast& forecast = *to->mutable_forecast();
  forecast.set_sends(step.forecasts);
  forecast.set_chosen_ns(static_cast<uint64_t>(step.predicted_ns));
  forecast.set_runner_up_ns(static_cast<uint64_t>(step.runner_up_ns));
  forecast.set_encode_ns(static_cast<uint64_t>(step.predicted_encode_ns));
  forecast.set_wire_ns(static_cast<uint64_t>(step.predicted_wire_ns));
}

void FillSends(const SendsInfo& from, v1::Sends* to) {
  to->set_operation(from.operation);
  to->set_algorithm(from.algorithm);
  to->set_way(from.way);
  for (size_t i = 0; i < from.steps.size(); ++i) {
    const runtime::SendStepStats& step = from.steps[i];
    v1::SendStep& said = *to->add_steps();
    said.set_step(static_cast<uint32_t>(i));
    said.set_phase(std::string(NameOf(step.phase)));
    said.set_link(std::string(policy::NameOf(step.link)));
    for (int reason = 0; reason < policy::kReasonCount; ++reason) {
      if (step.decisions[reason] == 0) continue;
      Name(policy::NameOf(static_cast<policy::Reason>(reason)), step.decisions[reason],
           said.add_decisions());
    }
    if (step.sparsity_count != 0) {
      said.set_sparsity(step.sparsity_sum / static_cast<double>(step.sparsity_count));
    }
    if (step.threshold != 0) said.set_threshold(step.threshold);
    said.set_wire_bytes(step.wire_bytes);
    said.set_dense_bytes(step.dense_bytes);
    FillFormats(step, &said);
  }
}

policy::Overrides::Partial PartialFrom(const v1::Thresholds& thresholds) {
  policy::Overrides::Partial partial;
  if (thresholds.has_intra()) partial.intra = thresholds.intra();
  if (thresholds.has_inter()) partial.inter = thresholds.inter();
  if (thresholds.has_ag()) partial.ag = thresholds.ag();
  return partial;
}

void FillThresholds(const policy::Overrides::Partial& from, v1::Thresholds* to) {
  if (from.intra.has_value()) to->set_intra(*from.intra);
  if (from.inter.has_value()) to->set_inter(*from.inter);
  if (from.ag.has_value()) to->set_ag(*from.ag);
}

policy::Overrides::Partial Whole(const policy::Thresholds& thresholds) {
  return {.intra = thresholds.intra, .inter = thresholds.inter, .ag = thresholds.ag};
}

}  // namespace

std::string BootIdText(uint64_t boot_id) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, boot_id);
  return text;
}

absl::StatusOr<Scope> FromProto(const v1::Scope& scope) {
  switch (scope.scope_case()) {
    case v1::Scope::kGlobal:
      return GlobalScope{};
    case v1::Scope::kJobId:
      return JobScope{scope.job_id()};
    case v1::Scope::kCommId:
      return CommScope{scope.comm_id()};
    case v1::Scope::SCOPE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("no scope is set: global, job_id or comm_id");
}

absl::StatusOr<policy::Overrides> FromProto(const v1::Settings& settings) {
  policy::Overrides overrides;
  if (settings.algorithm() != v1::ALGORITHM_UNSPECIFIED) {
    if (!v1::Algorithm_IsValid(settings.algorithm())) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown algorithm ", static_cast<int>(settings.algorithm())));
    }
    overrides.algorithm = static_cast<policy::Algorithm>(settings.algorithm() - 1);
  }
  if (settings.codec() != v1::CODEC_UNSPECIFIED) {
    if (!v1::Codec_IsValid(settings.codec())) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown codec ", static_cast<int>(settings.codec())));
    }
    overrides.codec = static_cast<policy::Codec>(settings.codec() - 1);
  }
  SPCCL_RETURN_IF_ERROR(SetLossy(settings.lossy(), &overrides));
  if (settings.has_slice_bytes()) overrides.slice_bytes = settings.slice_bytes();
  overrides.pici = PartialFrom(settings.pici());
  overrides.coo = PartialFrom(settings.coo());
  if (overrides == policy::Overrides{}) return absl::InvalidArgumentError("no setting is set");
  return overrides;
}

absl::StatusOr<SettingsPart> FromProto(v1::SettingsPart part) {
  switch (part) {
    case v1::SETTINGS_PART_ALL:
      return SettingsPart::kAll;
    case v1::SETTINGS_PART_THRESHOLDS:
      return SettingsPart::kThresholds;
    case v1::SETTINGS_PART_ALGORITHM:
      return SettingsPart::kAlgorithm;
    case v1::SETTINGS_PART_CODEC:
      return SettingsPart::kCodec;
    default:  // an open enumeration: a newer caller's part must not pass for "all"
      return absl::InvalidArgumentError(absl::StrCat("unknown part ", static_cast<int>(part)));
  }
}

JobShareOverrides FromProto(const v1::JobShare& share) {
  JobShareOverrides overrides;
  if (share.has_weight()) overrides.weight = share.weight();
  if (share.has_max_buffer_bytes()) overrides.max_buffer_bytes = share.max_buffer_bytes();
  if (share.has_max_communicators()) overrides.max_communicators = share.max_communicators();
  if (share.has_max_operations()) overrides.max_operations = share.max_operations();
  if (share.has_max_channels()) overrides.max_channels = share.max_channels();
  return overrides;
}

v1::JobShare ToProto(const JobShare& share) {
  v1::JobShare out;
  out.set_weight(static_cast<uint32_t>(share.weight));
  out.set_max_buffer_bytes(share.max_buffer_bytes);
  out.set_max_communicators(static_cast<uint32_t>(share.max_communicators));
  out.set_max_operations(static_cast<uint32_t>(share.max_operations));
  out.set_max_channels(static_cast<uint32_t>(share.max_channels));
  return out;
}

v1::Settings ToProto(const policy::Overrides& overrides) {
  v1::Settings settings;
  if (overrides.algorithm.has_value()) {
    settings.set_algorithm(static_cast<v1::Algorithm>(static_cast<int>(*overrides.algorithm) + 1));
  }
  if (overrides.codec.has_value()) {
    settings.set_codec(static_cast<v1::Codec>(static_cast<int>(*overrides.codec) + 1));
  }
  if (overrides.lossy.has_value()) settings.set_lossy(policy::TextOf(*overrides.lossy));
  if (overrides.slice_bytes.has_value()) settings.set_slice_bytes(*overrides.slice_bytes);
  FillThresholds(overrides.pici, settings.mutable_pici());
  FillThresholds(overrides.coo, settings.mutable_coo());
  return settings;
}

v1::Settings ToProto(const policy::Settings& settings) {
  return ToProto(policy::Overrides{.algorithm = settings.algorithm,
                                   .codec = settings.codec,
                                   .pici = Whole(settings.pici),
                                   .coo = Whole(settings.coo),
                                   .lossy = settings.lossy,
                                   .slice_bytes = settings.slice_bytes});
}

v1::Job ToProto(const JobInfo& job) {
  v1::Job out;
  out.set_id(job.id);
  out.set_uid(job.uid);
  out.set_sessions(job.sessions);
  out.set_communicators(job.communicators);
  out.set_buffers(job.buffers);
  out.set_buffer_bytes(job.buffer_bytes);
  FillCounters(job.counters, out.mutable_counters());
  out.set_registered(job.registered);
  *out.mutable_share() = ToProto(job.share);
  out.set_operations(job.operations);
  out.set_channel_ns(static_cast<uint64_t>(job.channel_ns));
  return out;
}

v1::Comm ToProto(const CommInfo& comm) {
  v1::Comm out;
  out.set_id(comm.id);
  out.set_job_id(comm.job_id);
  out.set_uid(comm.uid);
  out.set_ranks(comm.ranks);
  out.set_state(comm.state);
  out.set_error(comm.error);
  *out.mutable_settings() = ToProto(comm.settings);
  out.set_running_algorithm(comm.running_algorithm);
  out.set_running_chooser(comm.running_chooser);
  out.set_queued_ops(comm.queued_ops);
  FillCounters(comm.counters, out.mutable_counters());
  if (comm.last_sends) FillSends(*comm.last_sends, out.mutable_last_sends());
  for (const RankInfo& member : comm.members) {
    v1::Rank* rank = out.add_members();
    rank->set_rank(member.rank);
    rank->set_session_id(member.session_id);
    rank->set_pid(member.pid);
    rank->set_phase(member.phase);
  }
  for (const CommNodeInfo& node : comm.nodes) {
    v1::CommNode* said = out.add_nodes();
    said->set_name(node.name);
    said->set_address(node.address);
    said->set_route(node.route);
    said->mutable_ranks()->Add(node.ranks.begin(), node.ranks.end());
    said->set_round_trip_seconds(node.round_trip_seconds);
    said->set_link_bytes_per_second(node.link_bytes_per_second);
  }
  return out;
}

v1::Buffer ToProto(const BufferInfo& buffer) {
  v1::Buffer out;
  out.set_id(buffer.id);
  out.set_session_id(buffer.session_id);
  out.set_pid(buffer.pid);
  out.set_uid(buffer.uid);
  out.set_job_id(buffer.job_id);
  out.set_kind(buffer.kind);
  out.set_size_bytes(buffer.size_bytes);
  out.set_uses(buffer.uses);
  out.set_gpu(buffer.gpu);
  return out;
}

v1::Event ToProto(const Event& event) {
  v1::Event out;
  out.set_sequence(event.sequence);
  out.set_unix_nanos(event.unix_nanos);
  out.set_kind(event.kind);
  out.set_job_id(event.job_id);
  out.set_comm_id(event.comm_id);
  out.set_uid(event.uid);
  out.set_message(event.message);
  if (event.sends) FillSends(*event.sends, out.mutable_sends());
  return out;
}

namespace {

v1::GpuUse UseOf(GpusUsed use) {
  switch (use) {
    case GpusUsed::kUsed:
      return v1::GPU_USE_USED;
    case GpusUsed::kNone:
      return v1::GPU_USE_NONE;
    case GpusUsed::kOff:
      return v1::GPU_USE_OFF;
    case GpusUsed::kUnusable:
      return v1::GPU_USE_UNUSABLE;
  }
  return v1::GPU_USE_UNSPECIFIED;
}

void FillGpus(const GpuFacts& from, v1::Gpus* to) {
  to->set_use(UseOf(from.use));
  to->set_advice(from.advice);
  to->set_unused(from.unused);
  to->set_driver(from.driver);
  to->set_nccl(from.nccl);
  to->set_has_nccl(from.has_nccl);
  for (const std::string& refused : from.refused) to->add_refused(refused);
  for (const GpuFact& gpu : from.gpus) {
    v1::Gpu& said = *to->add_gpus();
    said.set_id(gpu.id);
    said.set_name(gpu.name);
    said.set_bytes(gpu.bytes);
    said.set_mps(gpu.mps);
    said.set_stream_operations(gpu.stream_operations);
    said.set_legacy_ipc(gpu.legacy_ipc);
    said.set_descriptors(gpu.descriptors);
    for (const uint32_t other : gpu.reaches) said.add_reaches(other);
    said.set_failure(gpu.failure);
  }
}

}  // namespace

v1::Status StatusOf(const Snapshot& snapshot, bool administrator) {
  const CoreInfo& core = snapshot.core;
  v1::Status out;
  out.set_version(core.version);
  out.set_pid(core.pid);
  out.set_uptime_seconds(static_cast<double>(core.uptime_ns) / kNanosPerSecond);
  out.set_healthy(core.healthy);
  out.set_health_detail(core.health_detail);
  out.set_draining(core.draining);
  out.set_channels(core.channels);
  out.set_codec_target(core.codec_target);
  out.set_last_progress_seconds(static_cast<double>(core.last_progress_age_ns) / kNanosPerSecond);
  out.set_sessions(core.sessions);
  out.set_jobs(static_cast<uint32_t>(snapshot.jobs.size()));
  out.set_communicators(static_cast<uint32_t>(snapshot.comms.size()));
  out.set_buffers(static_cast<uint32_t>(snapshot.buffers.size()));
  uint64_t buffer_bytes = 0;
  for (const BufferInfo& buffer : snapshot.buffers) buffer_bytes += buffer.size_bytes;
  out.set_buffer_bytes(buffer_bytes);
  FillCounters(core.counters, out.mutable_counters());
  out.set_administrator(administrator);
  out.set_mapped_bytes(core.mapped_bytes);
  FillGpus(core.gpus, out.mutable_gpus());
  return out;
}

}  // namespace spccl::daemon
