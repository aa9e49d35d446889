// What programs do where standard output takes nothing, as on a full disk.
#include "bench/support/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace spccl::bench {
namespace {

struct Result {
  std::string errors;
  int code;
};

Result RunOnFullDisk(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1 >/dev/full").c_str(), "r");
  std::string errors;
  std::array<char, 4096> part;
  while (const size_t read = fread(part.data(), 1, part.size(), pipe)) {
    errors.append(part.data(), read);
  }
  const int status = pclose(pipe);
  return {.errors = errors, .code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

// What prints little, which is written at the end, and what prints more than is kept until then.
TEST(OutputTest, WhatCannotBePrintedIsAFailure) {
  const std::string model = SPCCL_MODEL_PATH, codecs = CODEC_BENCH_PATH;
  for (const std::string& command :
       {model + " --gpus 8", model + " --json", model + " --help",
        codecs + " --bytes 64K --repeats 1", codecs + " --bytes 64K --repeats 1 --json",
        codecs + " --help"}) {
    const Result result = RunOnFullDisk(command);
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_THAT(result.errors, testing::ContainsRegex("^(spccl-model|codec-bench): standard output "
                                                      "could not be written"))
        << command;
  }
}

TEST(OutputTest, WhatFailsAnywayKeepsItsExitCode) {
  EXPECT_EQ(RunOnFullDisk(std::string(SPCCL_MODEL_PATH) + " --gpus 0").code, 1);
}

TEST(OutputTest, WhatIsPrintedIsFine) {
  EXPECT_TRUE(FlushOutput().ok());
  EXPECT_EQ(EndOutput("a-program", 0), 0);
  EXPECT_EQ(EndOutput("a-program", 3), 3);
}

}  // namespace
}  // namespace spccl::bench
