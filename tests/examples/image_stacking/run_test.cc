// image-stacking as a user runs it: real ranks on daemons of several nodes. It exits with 3 where a
// bound or the agreement of the ranks does not hold.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace {

// What the program prints with these options, and its exit code.
std::string Printed(const std::string& options, int* code) {
  FILE* pipe = popen((std::string(IMAGE_STACKING_PATH) + " " + options).c_str(), "r");
  std::string output;
  std::array<char, 4096> part;
  while (const size_t read = fread(part.data(), 1, part.size(), pipe)) {
    output.append(part.data(), read);
  }
  const int status = pclose(pipe);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

// It must end well.
nlohmann::json Stacked(const std::string& options) {
  int code = -1;
  const std::string output = Printed("--json --ranks 3 --nodes 3 --repeats 1 " + options, &code);
  EXPECT_EQ(code, 0) << output;
  return nlohmann::json::parse(output, nullptr, false);
}

TEST(ImageStacking, HoldsItsBoundAndLosesLittle) {
  for (const std::string algorithm : {"recursive-doubling", "split", "two-level-ring"}) {
    const nlohmann::json seen = Stacked("--side 256 --algo " + algorithm);
    ASSERT_TRUE(seen.is_object());
    ASSERT_EQ(seen["runs"].size(), 3u);
    EXPECT_GT(seen["stack_db"], seen["single_db"]);
    const auto& bounded = seen["runs"][1];
    EXPECT_EQ(bounded["codec"], "errorbound");
    EXPECT_LE(bounded["largest"], seen["promised"]);
    EXPECT_GT(bounded["largest"].get<double>(), 1e-5) << "nothing was lossy";
    EXPECT_GT(bounded["psnr_db"], 60);
    if (algorithm != "recursive-doubling") {
      EXPECT_GT(seen["runs"][2]["largest"].get<double>(), 1e-4) << "nothing was lossy";
    }
  }
}

// Sums of floats in the thousands are rounded by more than the bound.
TEST(ImageStacking, CountsWhatLargePixelsAreRoundedBy) {
  const nlohmann::json seen = Stacked("--side 64 --noise 1000 --bound 1e-6");
  ASSERT_TRUE(seen.is_object());
  ASSERT_EQ(seen["runs"].size(), 3u);
  EXPECT_GT(seen["runs"][1]["largest"].get<double>(), 2e-6) << "nothing was rounded";
}

TEST(ImageStacking, WrongUseIsExitCodeOne) {
  for (const std::string options : {"--side 1", "--bogus", "--noise -1", "--ranks 2 --nodes 3"}) {
    int code = -1;
    const std::string output = Printed(options + " 2>&1", &code);
    EXPECT_EQ(code, 1) << options;
    EXPECT_EQ(output.find("image-stacking: "), 0u) << output;
  }
  int code = -1;
  EXPECT_NE(Printed("--help", &code).find("--side"), std::string::npos);
  EXPECT_EQ(code, 0);
}

TEST(ImageStacking, WhatCannotBePrintedIsAFailure) {
  for (const std::string options : {"--ranks 2 --nodes 1 --side 16 --repeats 1 --json", "--help"}) {
    int code = -1;
    const std::string errors = Printed(options + " 2>&1 >/dev/full", &code);
    EXPECT_EQ(code, 2) << options;
    EXPECT_NE(errors.find("image-stacking: standard output could not be written"),
              std::string::npos);
  }
}

}  // namespace
