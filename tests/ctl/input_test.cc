// Files that commands are told to read and that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "proto/spccl/v1/flight_file.h"
#include "tests/ctl/flight_sample.h"
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

TEST(InputTest, WhatIsNoRecordIsWrongUse) {
  const spccl::testing::TempFolder temp;
  const std::string path = temp.path() + "/first.c";
  std::ofstream(path) << "// a program, and no record\n";
  for (const char* command : {"trace", "explain"}) {
    const ToolRun run = RunArgs({command, "--file", path});
    EXPECT_EQ(run.code, kWrongUse) << command;
    EXPECT_EQ(run.err, "spcclctl: " + path + ": not a flight record\n");
  }
}

TEST(InputTest, ARecordOfAnotherCommunicatorIsExitCodeFive) {
  const spccl::testing::TempFolder temp;
  const std::string path = temp.path() + "/record";
  std::ofstream(path, std::ios::binary) << flight::FormatFile(SampleRecord(2));  // of number 3
  for (const char* command : {"trace", "explain"}) {
    EXPECT_EQ(RunArgs({command, "3", "--file", path}).code, kFine) << command;
    const ToolRun run = RunArgs({command, "77", "--file", path});
    EXPECT_EQ(run.code, kNotFound) << command;
    EXPECT_EQ(run.out, "") << command;
    EXPECT_EQ(run.err, "spcclctl: " + path + ": a record of communicator 3, expected one of 77\n");
  }
}

TEST(InputTest, ATraceIsNotWrittenToAFolder) {
  const spccl::testing::TempFolder temp;
  const std::string record = temp.path() + "/record";
  std::ofstream(record, std::ios::binary) << flight::FormatFile(SampleRecord(2));
  const ToolRun run = RunArgs({"trace", "--file", record, "--out", temp.path()});
  EXPECT_EQ(run.code, kWrongUse);
  EXPECT_THAT(run.err, HasSubstr(temp.path() + ": is a directory, expected a file"));
}

}  // namespace
}  // namespace spccl::ctl
