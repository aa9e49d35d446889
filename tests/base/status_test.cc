#include "base/status.h"

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "base/cuda/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl {
namespace {

TEST(ErrnoStatusTest, NamesWhatWasTriedAndTheErrno) {
  const absl::Status status = ErrnoStatus(ENOENT, "open /nowhere");
  EXPECT_EQ(status.message(), "open /nowhere: No such file or directory");
}

TEST(ErrnoStatusTest, CodeFollowsTheErrno) {
  EXPECT_TRUE(absl::IsNotFound(ErrnoStatus(ENOENT, "x")));
  EXPECT_TRUE(absl::IsNotFound(ErrnoStatus(ESRCH, "x")));
  EXPECT_TRUE(absl::IsPermissionDenied(ErrnoStatus(EPERM, "x")));
  EXPECT_TRUE(absl::IsPermissionDenied(ErrnoStatus(EACCES, "x")));
  EXPECT_TRUE(absl::IsAlreadyExists(ErrnoStatus(EEXIST, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(ErrnoStatus(EFAULT, "x")));
  EXPECT_TRUE(absl::IsResourceExhausted(ErrnoStatus(EMFILE, "x")));
  EXPECT_TRUE(absl::IsUnavailable(ErrnoStatus(ECONNREFUSED, "x")));
  EXPECT_TRUE(absl::IsDeadlineExceeded(ErrnoStatus(ETIMEDOUT, "x")));
  EXPECT_TRUE(absl::IsInternal(ErrnoStatus(ENOTTY, "x")));
}

TEST(AnnotateTest, PutsTheContextBeforeTheMessageAndKeepsTheCode) {
  const absl::Status status = Annotate(absl::AbortedError("rank 3 died"), "all-reduce");
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_EQ(status.message(), "all-reduce: rank 3 died");
}

TEST(AnnotateTest, LeavesErrorsOfTheCudaDriverWhatTheyAre) {
  const absl::Status error = cuda::AsCudaError(absl::UnavailableError("illegal address"));
  EXPECT_TRUE(cuda::IsCudaError(Annotate(error, "GPU 0 has failed")));
  EXPECT_FALSE(cuda::IsCudaError(Annotate(absl::UnavailableError("gone"), "GPU 0")));
}

TEST(AnnotateTest, LeavesOkAsItIs) {
  EXPECT_TRUE(Annotate(absl::OkStatus(), "context").ok());
}

absl::StatusOr<std::unique_ptr<int>> MakeOrFail(bool fail) {
  if (fail) return absl::NotFoundError("no int");
  return std::make_unique<int>(7);
}

absl::Status Use(bool fail, int* out) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, MakeOrFail(fail));
  *out = *value;
  return absl::OkStatus();
}

absl::Status ReturnsAtTheFirst(const absl::Status& first, int* reached) {
  SPCCL_RETURN_IF_ERROR(first);
  ++*reached;
  return absl::OkStatus();
}

TEST(StatusMacrosTest, AssignMovesTheValueOrReturnsTheStatus) {
  int out = 0;
  EXPECT_TRUE(Use(false, &out).ok());
  EXPECT_EQ(out, 7);
  out = 0;
  EXPECT_EQ(Use(true, &out), absl::NotFoundError("no int"));
  EXPECT_EQ(out, 0) << "an output is set only on success";
}

TEST(StatusMacrosTest, ReturnIfErrorReturnsOnlyErrors) {
  int reached = 0;
  EXPECT_TRUE(ReturnsAtTheFirst(absl::OkStatus(), &reached).ok());
  EXPECT_TRUE(absl::IsAborted(ReturnsAtTheFirst(absl::AbortedError("x"), &reached)));
  EXPECT_EQ(reached, 1);
}

TEST(CheckDeathTest, NamesTheConditionAndThePlace) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const int one = 1;
  SPCCL_CHECK(one == 1);
  EXPECT_DEATH(SPCCL_CHECK(one == 2), "status_test\\.cc:[0-9]+: check failed: one == 2");
}

}  // namespace
}  // namespace spccl
