#include "client/error.h"

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace spccl::client {
namespace {

TEST(ErrorTest, ResultsSurviveTheWay) {
  for (uint32_t result : {spcclSuccess, spcclSystemError, spcclInternalError, spcclInvalidArgument,
                          spcclInvalidUsage, spcclRemoteError, spcclUnhandledCudaError}) {
    const absl::Status status = StatusOfWire(result, "why");
    EXPECT_EQ(ResultOfStatus(status), static_cast<spcclResult_t>(result));
    EXPECT_EQ(status.message(), result == spcclSuccess ? "" : "why");
  }
}

TEST(ErrorTest, WhatIsNoErrorResultIsAnInternalError) {
  for (uint32_t result : {uint32_t{spcclInProgress}, 8u, 0xFFFFFFFFu}) {
    EXPECT_EQ(ResultOfStatus(StatusOfWire(result, "x")), spcclInternalError) << result;
  }
}

TEST(ErrorTest, EveryResultHasItsText) {
  for (int result = 0; result < spcclNumResults; ++result) {
    EXPECT_STRNE(TextOfResult(result), TextOfResult(-1)) << result;
  }
  EXPECT_STREQ(TextOfResult(spcclNumResults), "unknown result code");
}

TEST(ErrorTest, TheLastErrorBelongsToTheThread) {
  EXPECT_EQ(Report("spcclX", absl::InvalidArgumentError("bad")), spcclInvalidArgument);
  EXPECT_EQ(Report("spcclY", absl::OkStatus()), spcclSuccess);
  EXPECT_EQ(ThreadLastError(), "spcclX: bad");
  std::string other = "unset";
  std::thread([&] { other = ThreadLastError(); }).join();
  EXPECT_EQ(other, "");
}

}  // namespace
}  // namespace spccl::client
