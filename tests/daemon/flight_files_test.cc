#include "daemon/flight_files.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/spccl/v1/flight_file.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

constexpr char kBootId[] = "00000000000000aa";

v1::FlightRecord RecordOf(uint64_t comm_id, int64_t unix_ns) {
  v1::FlightRecord record;
  record.set_boot_id(kBootId);
  record.set_comm_id(comm_id);
  record.set_unix_ns(unix_ns);
  record.set_reason("a test");
  return record;
}

class FlightFilesTest : public ::testing::Test {
 protected:
  std::string folder() const { return root_.path() + "/flight"; }
  FlightFiles Open(uint32_t files, uint64_t bytes = 1 << 20) {
    absl::StatusOr<FlightFiles> opened =
        FlightFiles::Open({.folder = folder(), .files = files, .bytes = bytes});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *opened;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    DIR* const open = ::opendir(folder().c_str());
    while (const dirent* entry = ::readdir(open)) {
      if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    ::closedir(open);
    std::sort(names.begin(), names.end());
    return names;
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  testing::TempFolder root_;
};

TEST_F(FlightFilesTest, WhatIsKeptIsFoundAndTheOwnersOnly) {
  FlightFiles files = Open(4);
  const absl::StatusOr<std::string> path = files.Keep(RecordOf(7, 1000));
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ModeOf(folder()), 0700U);
  EXPECT_EQ(ModeOf(*path), 0600U);
  const auto found = files.Find(kBootId, 7);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->reason(), "a test");
  EXPECT_TRUE(absl::IsNotFound(files.Find(kBootId, 8).status()));
  EXPECT_TRUE(absl::IsNotFound(files.Find("00000000000000ab", 7).status()));
}

TEST_F(FlightFilesTest, AFolderThatOthersMayEnterIsClosedToThem) {
  ASSERT_EQ(::mkdir(folder().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder().c_str(), 0777), 0);
  Open(4);
  EXPECT_EQ(ModeOf(folder()), 0700U);
}

TEST_F(FlightFilesTest, ALinkInTheFoldersPlaceIsRefused) {
  const std::string elsewhere = root_.path() + "/elsewhere";
  ASSERT_EQ(::mkdir(elsewhere.c_str(), 0755), 0);
  ASSERT_EQ(::symlink(elsewhere.c_str(), folder().c_str()), 0);
  const absl::Status status = FlightFiles::Open({.folder = folder()}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/flight: a symbolic link"));
  EXPECT_EQ(ModeOf(elsewhere), 0755U);
}

TEST_F(FlightFilesTest, AnothersFolderIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  ASSERT_EQ(::mkdir(folder().c_str(), 0700), 0);
  ASSERT_EQ(::chown(folder().c_str(), 4711, 4711), 0);
  const absl::Status status = FlightFiles::Open({.folder = folder()}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("of uid 4711, expected"));
}

TEST_F(FlightFilesTest, ALinkAsARecordIsNotFollowed) {
  FlightFiles files = Open(4);
  const std::string path = *files.Keep(RecordOf(7, 1000));
  const std::string elsewhere = root_.path() + "/elsewhere";
  ASSERT_EQ(::rename(path.c_str(), elsewhere.c_str()), 0);
  ASSERT_EQ(::symlink(elsewhere.c_str(), path.c_str()), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(files.Find(kBootId, 7).status()));
}

TEST_F(FlightFilesTest, TheNewestOfACommunicatorIsFound) {
  FlightFiles files = Open(4);
  for (const int64_t at : {1000, 3000, 2000}) ASSERT_TRUE(files.Keep(RecordOf(7, at)).ok());
  EXPECT_EQ(files.Find(kBootId, 7)->unix_ns(), 3000);
}

TEST_F(FlightFilesTest, TheOldestGoFirst) {
  FlightFiles files = Open(2);
  for (uint64_t comm = 1; comm <= 5; ++comm) {
    ASSERT_TRUE(files.Keep(RecordOf(comm, static_cast<int64_t>(comm))).ok());
    EXPECT_LE(Names().size(), 2U);
  }
  EXPECT_FALSE(files.Find(kBootId, 3).ok());
  EXPECT_TRUE(files.Find(kBootId, 4).ok());
  EXPECT_TRUE(files.Find(kBootId, 5).ok());
}

TEST_F(FlightFilesTest, BytesAreBoundedToo) {
  const uint64_t one = flight::FormatFile(RecordOf(1, 1)).size();
  FlightFiles files = Open(100, 2 * one);
  for (uint64_t comm = 1; comm <= 4; ++comm) {
    ASSERT_TRUE(files.Keep(RecordOf(comm, static_cast<int64_t>(comm))).ok());
  }
  EXPECT_EQ(Names().size(), 2U);
  v1::FlightRecord large = RecordOf(9, 9);
  large.set_reason(std::string(2 * one, 'x'));
  EXPECT_TRUE(absl::IsResourceExhausted(files.Keep(large).status()));
  EXPECT_EQ(Names().size(), 2U);  // and nothing went for it
}

TEST_F(FlightFilesTest, WhatIsKeptIsReadHoweverLargeAndWhatIsLargerIsNotKept) {
  FlightFiles files = Open(4, uint64_t{1} << 30);
  v1::FlightRecord large = RecordOf(7, 1000);
  large.set_reason(std::string(size_t{9} << 20, 'x'));
  ASSERT_TRUE(files.Keep(large).ok());
  const auto found = files.Find(kBootId, 7);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->reason().size(), large.reason().size());
  large.set_reason(std::string(flight::kMostRecordBytes, 'x'));
  EXPECT_TRUE(absl::IsResourceExhausted(files.Keep(large).status()));
  EXPECT_EQ(Names().size(), 1U);
}

TEST_F(FlightFilesTest, OpeningRemovesHalfWrittenOnesAndWhatIsTooMuchNow) {
  FlightFiles files = Open(4);
  for (uint64_t comm = 1; comm <= 4; ++comm) {
    ASSERT_TRUE(files.Keep(RecordOf(comm, static_cast<int64_t>(comm))).ok());
  }
  std::ofstream(folder() + "/flight-1-comm1.spcclflight.new") << "half";
  std::ofstream(folder() + "/notes") << "somebody's";
  FlightFiles fewer = Open(2);
  EXPECT_EQ(Names().size(), 3U);  // two records, and what is not ours
  EXPECT_FALSE(fewer.Find(kBootId, 2).ok());
  EXPECT_TRUE(fewer.Find(kBootId, 3).ok());
}

TEST_F(FlightFilesTest, ADamagedFileIsAnErrorAndNoRecord) {
  FlightFiles files = Open(4);
  const std::string path = *files.Keep(RecordOf(7, 1000));
  std::ofstream(path, std::ios::binary | std::ios::app) << "x";
  EXPECT_TRUE(absl::IsDataLoss(files.Find(kBootId, 7).status()));
}

}  // namespace
}  // namespace spccl::daemon
