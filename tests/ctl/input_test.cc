// Files that commands are told to read and that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "tests/ctl/run_tool.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

TEST(InputTest, WhatIsNoRegularFileIsRefusedAndNotWaitedFor) {
  const spccl::testing::TempFolder temp;
  const std::string pipe = temp.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {temp.path(), pipe, std::string("/dev/zero")}) {
    for (std::vector<std::string> command : std::vector<std::vector<std::string>>{
             {"tune", "load"}, {"trace", "--file"}, {"explain", "--file"}}) {
      command.push_back(path);
      const ToolRun run = RunArgs(command);
      EXPECT_EQ(run.code, kWrongUse) << command[0] << " " << path;
      EXPECT_THAT(run.err, HasSubstr(path + ": not a regular file")) << command[0];
    }
  }
}

TEST(InputTest, WhatIsNotThereIsExitCodeFive) {
  const spccl::testing::TempFolder temp;
  const ToolRun run = RunArgs({"tune", "load", temp.path() + "/none"});
  EXPECT_EQ(run.code, kNotFound);
  EXPECT_THAT(run.err, HasSubstr(temp.path() + "/none"));
}

}  // namespace
}  // namespace spccl::ctl
