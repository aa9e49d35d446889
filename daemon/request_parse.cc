#include "daemon/request_parse.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

template <size_t N>
absl::Status CheckText(const char (&text)[N], const char* field) {
  if (std::memchr(text, 0, N) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("request: ", field, " is not terminated"));
}

absl::Status CheckBody(const shm::Request& request) {
  switch (request.type) {
    case shm::RequestType::kHello:
      return CheckText(request.hello.name, "name");
    case shm::RequestType::kCommInit:
      SPCCL_RETURN_IF_ERROR(CheckText(request.comm_init.algorithm, "algorithm"));
      return CheckText(request.comm_init.codec, "codec");
    case shm::RequestType::kCommCodec:
      SPCCL_RETURN_IF_ERROR(CheckText(request.comm_codec.codec, "codec"));
      return CheckText(request.comm_codec.lossy, "lossy");
    case shm::RequestType::kUniqueId:
    case shm::RequestType::kCommDestroy:
    case shm::RequestType::kCommAbort:
    case shm::RequestType::kRegisterMemfd:
    case shm::RequestType::kRegisterAddress:
    case shm::RequestType::kDeregister:
    case shm::RequestType::kHandOverMemory:
    case shm::RequestType::kCommRelays:
    case shm::RequestType::kRegisterCuda:  // CheckGpuHandle looks at it
    case shm::RequestType::kOrderMemory:
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("request: unknown type ", static_cast<uint32_t>(request.type)));
}

}  // namespace

absl::StatusOr<shm::Request> ParseRequest(std::span<const std::byte> packet,
                                          std::optional<size_t> fds) {
  shm::Request request;
  if (packet.size() != sizeof request) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: ", packet.size(), " bytes, expected ", sizeof request));
  }
  std::memcpy(&request, packet.data(), sizeof request);
  if (request.magic != shm::kSessionMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: magic ", absl::Hex(request.magic, absl::kZeroPad8)));
  }
  if (request.request_id == 0) return absl::InvalidArgumentError("request: request_id is 0");
  SPCCL_RETURN_IF_ERROR(CheckBody(request));
  const size_t wanted = request.type == shm::RequestType::kRegisterMemfd ? 1 : 0;
  const bool any = !fds.has_value() || request.type == shm::RequestType::kRegisterCuda;
  const bool both = request.type == shm::RequestType::kHandOverMemory && fds == 2;
  if (!any && !both && *fds != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: ", *fds, " descriptors beside it, expected ", wanted));
  }
  return request;
}

}  // namespace spccl::daemon
