#include "base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace spccl {
namespace {

using ::testing::HasSubstr;

class ReadFileTest : public ::testing::Test {
 protected:
  ReadFileTest() {
    char pattern[] = "/tmp/spccl_read_XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~ReadFileTest() override { std::filesystem::remove_all(folder_); }
  std::string Put(const std::string& content) {
    std::ofstream(folder_ + "/file", std::ios::binary) << content;
    return folder_ + "/file";
  }

  std::string folder_;
};

TEST_F(ReadFileTest, ReadsAllThatIsThere) {
  EXPECT_EQ(ReadRegularFile(Put(""), 1024).value(), "");
  const std::string longest(8192, 'x');
  EXPECT_EQ(ReadRegularFile(Put(longest), 8192).value(), longest);
}

TEST_F(ReadFileTest, WhatIsTooLongIsRefusedWithTheLimit) {
  const absl::Status kib = ReadRegularFile(Put(std::string(8193, 'x')), 8192).status();
  EXPECT_TRUE(absl::IsInvalidArgument(kib)) << kib;
  EXPECT_THAT(kib.message(), HasSubstr("/file: longer than 8 KiB"));
  const absl::Status mib = ReadRegularFile(Put(std::string((1 << 20) + 1, 'x')), 1 << 20).status();
  EXPECT_THAT(mib.message(), HasSubstr("longer than 1 MiB"));
}

TEST_F(ReadFileTest, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {folder_, pipe, std::string("/dev/zero")}) {
    const absl::Status status = ReadRegularFile(path, 1024).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(status.message(), path + ": not a regular file");
  }
  EXPECT_TRUE(absl::IsNotFound(ReadRegularFile(folder_ + "/none", 1024).status()));
}

TEST_F(ReadFileTest, LinksAreFollowedOnlyWhereThatIsWanted) {
  const std::string link = folder_ + "/link";
  std::filesystem::create_symlink(Put("behind"), link);
  EXPECT_EQ(ReadRegularFile(link, 1024).value(), "behind");
  const absl::Status status = ReadRegularFile(link, 1024, Links::kRefuse).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(status.message(), link + ": a symbolic link, expected a regular file");
  EXPECT_EQ(ReadRegularFile(folder_ + "/file", 1024, Links::kRefuse).value(), "behind");
}

}  // namespace
}  // namespace spccl
