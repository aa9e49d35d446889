#include "daemon/request_parse.h"

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::testing::HasSubstr;

shm::Request Valid(shm::RequestType type) {
  shm::Request request{};
  request.magic = shm::kSessionMagic;
  request.type = type;
  request.request_id = 1;
  return request;
}

absl::StatusOr<shm::Request> Parse(const shm::Request& request, size_t fds = 0) {
  return ParseRequest(std::as_bytes(std::span(&request, 1)), fds);
}

void ExpectRefused(const shm::Request& request, size_t fds, const char* reason) {
  EXPECT_THAT(Parse(request, fds),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
}

TEST(ParseRequestTest, TakesEveryTypeAndNoOther) {
  for (uint32_t type = 1; type <= 13; ++type) {
    const auto request_type = static_cast<shm::RequestType>(type);
    const size_t fds = request_type == shm::RequestType::kRegisterMemfd ? 1 : 0;
    const auto parsed = Parse(Valid(request_type), fds);
    ASSERT_THAT(parsed, IsOk()) << type;
    EXPECT_EQ(parsed->type, request_type);
    // How many a handle of GPU memory needs, CheckGpuHandle knows.
    if (request_type == shm::RequestType::kRegisterCuda) continue;
    ExpectRefused(Valid(request_type), fds + 1, "descriptors");
  }
  for (const uint32_t type : {0u, 14u, 0x80000000u, 0xFFFFFFFFu}) {
    ExpectRefused(Valid(static_cast<shm::RequestType>(type)), 0, "unknown type");
  }
  ExpectRefused(Valid(shm::RequestType::kRegisterMemfd), 0, "descriptors");
}

TEST(ParseRequestTest, ForgivesDescriptorsThatWereLost) {
  const shm::Request request = Valid(shm::RequestType::kRegisterMemfd);
  EXPECT_THAT(ParseRequest(std::as_bytes(std::span(&request, 1)), std::nullopt), IsOk());
}

TEST(ParseRequestTest, WantsExactlyOneRequest) {
  std::vector<std::byte> bytes(sizeof(shm::Request) + 1);
  const shm::Request request = Valid(shm::RequestType::kUniqueId);
  std::memcpy(bytes.data(), &request, sizeof request);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const auto parsed = ParseRequest(std::span(bytes).first(size), 0);
    EXPECT_EQ(parsed.ok(), size == sizeof request) << size;
  }
}

TEST(ParseRequestTest, WantsMagicAndId) {
  shm::Request request = Valid(shm::RequestType::kUniqueId);
  request.magic ^= 1;
  ExpectRefused(request, 0, "magic");
  request = Valid(shm::RequestType::kUniqueId);
  request.request_id = 0;
  ExpectRefused(request, 0, "request_id");
}

TEST(ParseRequestTest, WantsTerminatedTexts) {
  shm::Request request = Valid(shm::RequestType::kHello);
  std::memset(request.hello.name, 'x', sizeof request.hello.name);
  ExpectRefused(request, 0, "name");
  request = Valid(shm::RequestType::kCommInit);
  std::memset(request.comm_init.algorithm, 'x', sizeof request.comm_init.algorithm);
  ExpectRefused(request, 0, "algorithm");
  request = Valid(shm::RequestType::kCommInit);
  std::memset(request.comm_init.codec, 'x', sizeof request.comm_init.codec);
  ExpectRefused(request, 0, "codec");
  request = Valid(shm::RequestType::kCommCodec);
  std::memset(request.comm_codec.codec, 'x', sizeof request.comm_codec.codec);
  ExpectRefused(request, 0, "codec");
  request = Valid(shm::RequestType::kCommCodec);
  std::memset(request.comm_codec.lossy, 'x', sizeof request.comm_codec.lossy);
  ExpectRefused(request, 0, "lossy");
}

}  // namespace
}  // namespace spccl::daemon
