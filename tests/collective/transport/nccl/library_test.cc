#include "collective/transport/nccl/library.h"

#include <gmock/gmock.h>

#include "tests/collective/transport/nccl/cluster.h"

namespace spccl::transport::nccl {
namespace {

using testing::HasSubstr;

TEST(NcclLibraryTest, SaysWhatItIs) {
  Fake().Reset({});
  const auto library = Library::Load(SPCCL_FAKE_NCCL);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->version(), 22809);
  EXPECT_EQ((*library)->FormatVersion(), "2.28.9");
  EXPECT_FALSE((*library)->is_ncclx());
  EXPECT_THAT((*library)->Describe(), HasSubstr("NCCL 2.28.9 (/"));
  const auto extended = Library::Load(SPCCL_FAKE_NCCLX);
  ASSERT_TRUE(extended.ok()) << extended.status();
  EXPECT_TRUE((*extended)->is_ncclx());
  EXPECT_THAT((*extended)->Describe(), HasSubstr("NCCLX "));
}

TEST(NcclLibraryTest, SaysWhatIsMissing) {
  const auto none = Library::Load("/nowhere/libnccl.so.2");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("/nowhere/libnccl.so.2"));
  const auto other = Library::Load("libm.so.6");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("ncclGetVersion"));
}

TEST(NcclLibraryTest, RefusesAnOldOne) {
  Fake().Reset({.version = 21703});
  const auto old = Library::Load(SPCCL_FAKE_NCCL);
  EXPECT_EQ(old.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(old.status().message()), HasSubstr("2.17.3"));
  Fake().Reset({});
}

TEST(NcclLibraryTest, TellsWhatNcclSays) {
  Fake().Reset({});
  const auto library = *Library::Load(SPCCL_FAKE_NCCL);
  EXPECT_TRUE(library->ToStatus(kSuccess, "x").ok());
  const absl::Status status = library->ToStatus(kRemoteError, "moving frames");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "moving frames: remote process exited (says the fake)");
  EXPECT_EQ(library->ToStatus(kInvalidArgument, "x").code(), absl::StatusCode::kInvalidArgument);
}

// Where there is a real one, it has all that we call.
TEST(NcclLibraryTest, LoadsTheSystemsOwn) {
  const auto library = Library::Load();
  if (!library.ok() && library.status().code() == absl::StatusCode::kNotFound) {
    GTEST_SKIP() << library.status();
  }
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_GE((*library)->version(), Library::kOldest);
  std::cout << (*library)->Describe() << "\n";
}

}  // namespace
}  // namespace spccl::transport::nccl
