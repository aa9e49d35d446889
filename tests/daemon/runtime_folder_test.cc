#include "daemon/runtime_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::spccl::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Logged(const std::string& path) {
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(MakeRuntimeFolder(path), IsOk());
  return ::testing::internal::GetCapturedStderr();
}

TEST(RuntimeFolderTest, MakesOneThatOnlyTheDaemonWrites) {
  const TempFolder parent;
  // Those like /tmp are no danger to what is in them.
  ASSERT_EQ(::chmod(parent.path().c_str(), 01777), 0);
  const std::string path = parent.path() + "/run";
  const mode_t before = ::umask(0);
  EXPECT_EQ(Logged(path), "");
  ::umask(before);
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0755u);
  EXPECT_EQ(Logged(path), "");
  EXPECT_THAT(MakeRuntimeFolder(parent.path() + "/none/run"),
              FailsWith(absl::StatusCode::kNotFound, HasSubstr("/none/run")));
}

TEST(RuntimeFolderTest, MakesOneThatOthersEnterWhateverTheUmask) {
  const TempFolder parent;
  const std::string path = parent.path() + "/run", closed = parent.path() + "/closed";
  ASSERT_EQ(::mkdir(closed.c_str(), 0700), 0);
  const mode_t before = ::umask(077);
  EXPECT_EQ(Logged(path), "");
  EXPECT_EQ(Logged(closed), "");
  ::umask(before);
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0755u);
  ASSERT_EQ(::stat(closed.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0700u);  // it was there already
}

TEST(RuntimeFolderTest, WarnsOfOneThatOthersMayWrite) {
  const TempFolder folder;
  const std::string& path = folder.path();
  for (const auto& [mode, text, advice] :
       {std::tuple(0777u, "0777", "chmod go-w "), std::tuple(01757u, "1757", "chmod o-w "),
        std::tuple(0775u, "0775", "chmod g-w ")}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_THAT(
        Logged(path),
        AllOf(HasSubstr(" warning main: others may write in the runtime folder"),
              HasSubstr("folder=\"" + path + "\""), HasSubstr("mode=\"" + std::string(text) + "\""),
              HasSubstr(advice + path), Not(HasSubstr("chown"))));
  }
}

TEST(RuntimeFolderTest, WarnsOfOneThatIsAnothers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(::chown(folder.path().c_str(), 65534, 65534), 0);
  EXPECT_THAT(Logged(folder.path()),
              AllOf(HasSubstr("owner=\"uid 65534\""), HasSubstr("chown it to uid 0")));
}

}  // namespace
}  // namespace spccl::daemon
