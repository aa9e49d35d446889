#include "tests/support/health_client.h"

#include <chrono>
#include <vector>

#include "base/clock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace spccl::testing {

Health AskHealth(const std::string& control_socket) {
  grpc::GenericStub stub(
      grpc::CreateChannel("unix:" + control_socket, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const grpc::Slice empty("");  // a HealthCheckRequest that names no service
  const grpc::ByteBuffer request(&empty, 1);
  grpc::CompletionQueue queue;
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (!status.ok() || !reply.Dump(&slices).ok() || slices.empty()) return Health::kNoAnswer;
  // A HealthCheckResponse: field 1, an enumeration.
  const grpc::Slice& bytes = slices.front();
  return bytes.size() == 2 ? static_cast<Health>(bytes.begin()[1]) : Health::kNoAnswer;
}

bool HealthBecomes(const std::string& control_socket, Health wanted, int64_t timeout_ms) {
  const int64_t end_ns = MonotonicNanos() + timeout_ms * 1'000'000;
  do {
    if (AskHealth(control_socket) == wanted) return true;
  } while (MonotonicNanos() < end_ns);
  return false;
}

}  // namespace spccl::testing
