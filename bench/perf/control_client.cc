#include "bench/perf/control_client.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/spccl/v1/control.grpc.pb.h"

namespace spccl::bench {
namespace {

constexpr std::chrono::seconds kDeadline(10);
constexpr char kStaged[] = "staged";  // v1::Buffer.kind

std::map<std::string, uint64_t> ToCounts(
    const google::protobuf::RepeatedPtrField<v1::NamedCount>& from) {
  std::map<std::string, uint64_t> counts;
  for (const v1::NamedCount& count : from) counts[count.key()] = count.value();
  return counts;
}

Traffic ToTraffic(const v1::Counters& counters) {
  Traffic traffic;
  traffic.wire_bytes = counters.wire_bytes();
  traffic.dense_bytes = counters.dense_bytes();
  for (const v1::NamedCount& sends : counters.sends_by_format()) {
    for (int i = 0; i < kFormatCount; ++i) {
      if (sends.key() == NameOf(static_cast<Format>(i))) traffic.sends_by_format[i] = sends.value();
    }
  }
  traffic.decisions = ToCounts(counters.decisions());
  traffic.spent_ns = {{"encode", counters.encode_ns()},
                      {"send", counters.send_ns()},
                      {"reduce", counters.reduce_ns()},
                      {"receive_wait", counters.receive_wait_ns()},
                      {"room_wait", counters.room_wait_ns()}};
  return traffic;
}

SendStep ToSend(const v1::SendStep& step) {
  return {.step = step.step(),
          .phase = step.phase(),
          .link = step.link(),
          .formats = ToCounts(step.formats()),
          .runners_up = ToCounts(step.runners_up()),
          .chosen_ns = step.forecast().chosen_ns(),
          .runner_up_ns = step.forecast().runner_up_ns(),
          .predicted_encode_ns = step.forecast().encode_ns(),
          .encode_ns = step.encode_ns(),
          .predicted_wire_ns = step.forecast().wire_ns(),
          .wire_ns = step.wire_ns()};
}

// "pici-column" as the protocol names it.
std::string EnumName(const std::string& prefix, std::string name) {
  for (char& letter : name) letter = letter == '-' ? '_' : absl::ascii_toupper(letter);
  return prefix + name;
}

void Prepare(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kDeadline);
  context->set_wait_for_ready(true);
}

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the daemon's control service: ", status.error_message()));
}

}  // namespace

struct ControlClient::Stub {
  std::unique_ptr<v1::Control::Stub> control;

  // This process's communicator.
  absl::StatusOr<v1::Comm> Find();
  // Why the daemon has not been handed memory of that GPU.
  absl::StatusOr<std::string> WhyStaged(const std::string& gpu);
};

ControlClient::ControlClient(const std::string& runtime_dir) : stub_(new Stub) {
  stub_->control = v1::Control::NewStub(grpc::CreateChannel("unix:" + runtime_dir + "/control.sock",
                                                            grpc::InsecureChannelCredentials()));
}

ControlClient::ControlClient(ControlClient&& other) noexcept = default;
ControlClient::~ControlClient() = default;

absl::StatusOr<Traffic> ControlClient::Read() {
  SPCCL_ASSIGN_OR_RETURN(const v1::Comm comm, stub_->Find());
  Traffic traffic = ToTraffic(comm.counters());
  traffic.ran = comm.running_algorithm();
  for (const v1::SendStep& step : comm.last_sends().steps()) {
    if (step.decisions_size() != 0) traffic.last_sends.push_back(ToSend(step));
  }
  return traffic;
}

absl::StatusOr<GpuBuffers> ControlClient::ReadGpuBuffers() {
  SPCCL_ASSIGN_OR_RETURN(const v1::Comm comm, stub_->Find());
  v1::ListBuffersResponse reply;
  {
    grpc::ClientContext context;
    Prepare(&context);
    SPCCL_RETURN_IF_ERROR(
        ToStatus(stub_->control->ListBuffers(&context, v1::ListBuffersRequest(), &reply)));
  }
  GpuBuffers found;
  for (const v1::Rank& rank : comm.members()) {
    if (rank.session_id() == 0) continue;  // on another node
    bool has_any = false;
    for (const v1::Buffer& buffer : reply.buffers()) {
      if (buffer.session_id() != rank.session_id() || buffer.gpu().empty()) continue;
      has_any = true;
      if (buffer.kind() == kStaged) {
        SPCCL_ASSIGN_OR_RETURN(const std::string why, stub_->WhyStaged(buffer.gpu()));
        found.not_handed_over = absl::StrCat("staged through the host: ", why);
        return found;
      }
      found.kinds.insert(buffer.kind());
    }
    if (!has_any) {
      found.not_handed_over =
          absl::StrCat("not handed over: spccld lists no GPU's memory of rank ", rank.rank());
    }
  }
  return found;
}

absl::StatusOr<std::string> ControlClient::Stub::WhyStaged(const std::string& gpu) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::GetStatusResponse reply;
  SPCCL_RETURN_IF_ERROR(ToStatus(control->GetStatus(&context, v1::GetStatusRequest(), &reply)));
  const v1::Gpus& gpus = reply.status().gpus();
  if (!gpus.unused().empty()) return gpus.unused();
  for (const v1::Gpu& used : gpus.gpus()) {
    if (used.id() != gpu) continue;
    if (!used.failure().empty()) return used.failure();
    return "spccld uses that GPU, but memory of this kind cannot be shared, or SPCCL_FORCE_STAGING "
           "is set";
  }
  return absl::StrCat("spccld does not use ", gpu);
}

absl::StatusOr<v1::Comm> ControlClient::Stub::Find() {
  grpc::ClientContext context;
  Prepare(&context);
  v1::ListCommsResponse reply;
  SPCCL_RETURN_IF_ERROR(ToStatus(control->ListComms(&context, v1::ListCommsRequest(), &reply)));
  for (const v1::Comm& comm : reply.comms()) {
    const auto& members = comm.members();
    if (std::any_of(members.begin(), members.end(),
                    [](const v1::Rank& rank) { return rank.pid() == getpid(); })) {
      return comm;
    }
  }
  return absl::NotFoundError("the daemon does not list this process's communicator");
}

absl::Status ControlClient::Apply(const Setting& setting) {
  SPCCL_ASSIGN_OR_RETURN(const v1::Comm comm, stub_->Find());
  grpc::ClientContext context;
  Prepare(&context);
  v1::SetSettingsRequest request;
  request.mutable_scope()->set_comm_id(comm.id());
  v1::Settings& settings = *request.mutable_settings();
  if (!setting.codec.empty()) {
    v1::Codec code = v1::CODEC_UNSPECIFIED;
    v1::Codec_Parse(EnumName("CODEC_", setting.codec), &code);  // the options have checked it
    settings.set_codec(code);
    for (v1::Thresholds* const thresholds : {settings.mutable_pici(), settings.mutable_coo()}) {
      thresholds->set_intra(setting.threshold);
      thresholds->set_inter(setting.threshold);
      thresholds->set_ag(setting.threshold);
    }
  }
  if (!setting.algo.empty()) {
    v1::Algorithm code = v1::ALGORITHM_UNSPECIFIED;
    v1::Algorithm_Parse(EnumName("ALGORITHM_", setting.algo), &code);
    settings.set_algorithm(code);
    settings.set_slice_bytes(setting.slice_bytes);
  }
  v1::SetSettingsResponse reply;
  return ToStatus(stub_->control->SetSettings(&context, request, &reply));
}

}  // namespace spccl::bench
