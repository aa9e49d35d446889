#include "proto/shm/session.h"

#include <string>

#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "spccl/spccl.h"

namespace spccl::shm {
namespace {

TEST(SetTextTest, CutsWhatIsTooLongAndTerminates) {
  char array[8];
  SetText(array, "seven77");
  EXPECT_STREQ(array, "seven77");
  SetText(array, "eight888");
  EXPECT_STREQ(array, "eight88");
}

// What was there before must not leak to the other process behind the new text.
TEST(SetTextTest, ClearsTheRest) {
  char array[8] = {'s', 'e', 'c', 'r', 'e', 't', '!', '!'};
  SetText(array, "a");
  for (int i = 1; i < 8; ++i) EXPECT_EQ(array[i], '\0') << i;
  SetText(array, "");
  EXPECT_EQ(array[0], '\0');
}

TEST(TextOfTest, EndsAtTheNulOrAtTheEndOfTheArray) {
  const char terminated[8] = {'a', 'b', '\0', 'x'};
  EXPECT_EQ(TextOf(terminated), "ab");
  const char full[4] = {'f', 'u', 'l', 'l'};
  EXPECT_EQ(TextOf(full), "full");
}

TEST(ResultTest, HasTheNumbersOfThePublicHeader) {
  EXPECT_EQ(static_cast<int>(Result::kSuccess), spcclSuccess);
  EXPECT_EQ(static_cast<int>(Result::kUnhandledCudaError), spcclUnhandledCudaError);
  EXPECT_EQ(static_cast<int>(Result::kSystemError), spcclSystemError);
  EXPECT_EQ(static_cast<int>(Result::kInternalError), spcclInternalError);
  EXPECT_EQ(static_cast<int>(Result::kInvalidArgument), spcclInvalidArgument);
  EXPECT_EQ(static_cast<int>(Result::kInvalidUsage), spcclInvalidUsage);
  EXPECT_EQ(static_cast<int>(Result::kRemoteError), spcclRemoteError);
  EXPECT_EQ(static_cast<int>(Result::kInProgress), spcclInProgress);
  EXPECT_EQ(kUniqueIdBytes, size_t{SPCCL_UNIQUE_ID_BYTES});
}

TEST(ResultTest, EveryFailureIsAFailure) {
  for (int code = 1; code <= 16; ++code) {
    EXPECT_NE(ResultOf(static_cast<absl::StatusCode>(code)), Result::kSuccess) << code;
    EXPECT_NE(ResultOf(static_cast<absl::StatusCode>(code)), Result::kInProgress) << code;
  }
  EXPECT_EQ(ResultOf(absl::StatusCode::kOk), Result::kSuccess);
}

}  // namespace
}  // namespace spccl::shm
