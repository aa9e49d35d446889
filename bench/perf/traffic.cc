#include "bench/perf/traffic.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/spccl/v1/control.grpc.pb.h"

namespace spccl::bench {
namespace {

constexpr std::chrono::seconds kDeadline(10);

Traffic ToTraffic(const v1::Counters& counters) {
  Traffic traffic;
  traffic.wire_bytes = counters.wire_bytes();
  traffic.dense_bytes = counters.dense_bytes();
  for (const v1::NamedCount& sends : counters.sends_by_format()) {
    for (int i = 0; i < kFormatCount; ++i) {
      if (sends.key() == NameOf(static_cast<Format>(i))) traffic.sends_by_format[i] = sends.value();
    }
  }
  for (const v1::NamedCount& count : counters.decisions()) {
    traffic.decisions[count.key()] = count.value();
  }
  traffic.spent_ns = {{"encode", counters.encode_ns()},
                      {"send", counters.send_ns()},
                      {"reduce", counters.reduce_ns()},
                      {"receive_wait", counters.receive_wait_ns()},
                      {"room_wait", counters.room_wait_ns()}};
  return traffic;
}

}  // namespace

struct TrafficReader::Stub {
  std::unique_ptr<v1::Control::Stub> control;
};

TrafficReader::TrafficReader(const std::string& runtime_dir) : stub_(new Stub) {
  stub_->control = v1::Control::NewStub(grpc::CreateChannel("unix:" + runtime_dir + "/control.sock",
                                                            grpc::InsecureChannelCredentials()));
}

TrafficReader::TrafficReader(TrafficReader&& other) noexcept = default;
TrafficReader::~TrafficReader() = default;

absl::StatusOr<Traffic> TrafficReader::Read() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  context.set_wait_for_ready(true);
  v1::ListCommsResponse reply;
  const grpc::Status status = stub_->control->ListComms(&context, v1::ListCommsRequest(), &reply);
  if (!status.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the daemon's control service: ", status.error_message()));
  }
  for (const v1::Comm& comm : reply.comms()) {
    const auto& members = comm.members();
    if (std::any_of(members.begin(), members.end(),
                    [](const v1::Rank& rank) { return rank.pid() == getpid(); })) {
      return ToTraffic(comm.counters());
    }
  }
  return absl::NotFoundError("the daemon does not list this process's communicator");
}

}  // namespace spccl::bench
