#include "ctl/client.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/create_channel_posix.h"
#include "proto/spccl/v1/flight_file.h"

namespace spccl::ctl {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;

}  // namespace

absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path, int type) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("socket path too long: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    const absl::Status status = ErrnoStatus(error, absl::StrCat("no daemon at ", path));
    if (error == EACCES || error == EPERM) return status;
    return absl::UnavailableError(status.message());
  }
  return socket;
}

std::string ControlSocketPath(const std::string& runtime_dir) {
  return runtime_dir + "/control.sock";
}

absl::Status FromGrpc(const grpc::Status& status, const std::string& path, int64_t deadline_ns) {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the daemon at ", path, " did not answer within ",
        absl::FormatDuration(absl::Ceil(absl::Nanoseconds(deadline_ns), absl::Milliseconds(1)))));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("lost the daemon at ", path, ": ", status.error_message()));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status CheckText(const google::protobuf::Message& request) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& of = *request.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  of.ListFields(request, &fields);
  for (const FieldDescriptor* const field : fields) {
    const bool is_text = field->type() == FieldDescriptor::TYPE_STRING;
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated() || !(is_text || is_message)) continue;
    if (is_message) {
      SPCCL_RETURN_IF_ERROR(CheckText(of.GetMessage(request, field)));
    } else if (!IsUtf8(of.GetString(request, field))) {
      return absl::InvalidArgumentError(absl::StrCat(field->name(), " is not UTF-8"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const GlobalOptions& options) {
  std::unique_ptr<Client> client(
      new Client(ControlSocketPath(options.runtime_dir), options.deadline_ns));
  SPCCL_ASSIGN_OR_RETURN(UniqueFd socket, ConnectSocket(client->path_, SOCK_STREAM));
  const int deadline_ms =
      static_cast<int>(std::max<int64_t>(1000, options.deadline_ns / kNanosPerMilli));
  grpc::ChannelArguments arguments;
  // The largest answers are flight records, by far.
  arguments.SetMaxReceiveMessageSize(static_cast<int>(flight::kMostReadBytes));
  // A daemon that hangs is found by pings even where a stream rightly is silent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, deadline_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, deadline_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  client->stub_ = v1::Control::NewStub(
      grpc::CreateCustomInsecureChannelFromFd("spccld", socket.Release(), arguments));
  return client;
}

StreamGuard::StreamGuard(grpc::ClientContext* context, int64_t limit_ns)
    : context_(context),
      limit_(limit_ns),
      due_(std::chrono::steady_clock::now() + limit_),
      thread_([this] { Watch(); }) {}

StreamGuard::~StreamGuard() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StreamGuard::Rearm() {
  const std::lock_guard lock(mutex_);
  due_ = std::chrono::steady_clock::now() + limit_;
}

void StreamGuard::Disarm() {
  const std::lock_guard lock(mutex_);
  armed_ = false;
  changed_.notify_all();
}

void StreamGuard::Watch() {
  std::unique_lock lock(mutex_);
  while (!done_ && armed_) {
    if (std::chrono::steady_clock::now() >= due_) {
      expired_.store(true);
      context_->TryCancel();
      return;
    }
    const auto due = due_;
    changed_.wait_until(lock, due);
  }
}

}  // namespace spccl::ctl
