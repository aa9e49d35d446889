// An output that takes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "ctl/context.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

int RunIntoFull(std::vector<const char*> argv, std::string* errors) {
  std::ofstream full("/dev/full");
  std::ostringstream err;
  argv.insert(argv.begin(), "spcclctl");
  const int code = RunTool(static_cast<int>(argv.size()), argv.data(), &full, &err);
  *errors = err.str();
  return code;
}

TEST(OutputTest, WhatCannotBePrintedIsAFailure) {
  for (const std::vector<const char*>& command :
       std::vector<std::vector<const char*>>{{"completion", "bash"},
                                             {"completion", "zsh", "-o", "json"},
                                             {"--help"},
                                             {"--version"}}) {
    std::string errors;
    EXPECT_EQ(RunIntoFull(command, &errors), kUnhealthy) << command[0];
    EXPECT_THAT(errors, HasSubstr("standard output could not be written")) << command[0];
  }
}

TEST(OutputTest, TheCommandsOwnFailureStays) {
  const spccl::testing::TempFolder temp;
  std::string errors;
  EXPECT_EQ(RunIntoFull({"status", "-o", "json", "--runtime-dir", temp.path().c_str()}, &errors),
            kNotReachable);
  EXPECT_THAT(errors, HasSubstr("no daemon at"));
}

}  // namespace
}  // namespace spccl::ctl
