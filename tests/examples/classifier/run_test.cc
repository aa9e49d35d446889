// The classifier as a user runs it: real ranks on a real daemon.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "examples/classifier/corpus.h"
#include "tests/support/thinning.h"

namespace {

namespace fs = std::filesystem;

// The program and the daemon that it starts, where an installation has them.
std::string Install() {
  const fs::path prefix = fs::path(testing::TempDir()) / "classifier-prefix";
  fs::remove_all(prefix);
  const fs::path program = prefix / "libexec/spccl/classifier";
  const fs::path daemon = prefix / "sbin/spccld";
  for (const fs::path& file : {program, daemon}) fs::create_directories(file.parent_path());
  fs::copy_file(CLASSIFIER_PATH, program);
  fs::copy_file(DAEMON_PATH, daemon);
  return program.string();
}

// What the program prints, and its exit code.
std::string Printed(const std::string& arguments, int* code) {
  FILE* pipe = popen((Install() + " --json " + arguments).c_str(), "r");
  std::string output;
  std::array<char, 4096> part;
  while (const size_t read = fread(part.data(), 1, part.size(), pipe)) {
    output.append(part.data(), read);
  }
  const int status = pclose(pipe);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

nlohmann::json RunClassifier(const std::string& arguments) {
  int code = -1;
  const std::string output = Printed(arguments, &code);
  EXPECT_EQ(code, 0) << output;
  return nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
}

void ExpectSound(const nlohmann::json& seen) {
  ASSERT_TRUE(seen.is_object());
  EXPECT_EQ(seen["same_weights"], true);
  ASSERT_EQ(seen["runs"].size(), 3u);
  for (const auto& run : seen["runs"]) {
    EXPECT_EQ(run["weights"], seen["runs"][0]["weights"]) << run;
    EXPECT_EQ(run["accuracy"], seen["runs"][0]["accuracy"]) << run;
    EXPECT_GT(run["steps"], 0) << run;
    EXPECT_GT(run["step_us"], run["all_reduce_us"]) << run;
  }
  EXPECT_GT(seen["gradient_sparsity"], seen["sum_sparsity"]);
}

// Two classes of made-up text that share no word.
TEST(Classifier, LearnsAndAllPlansAgree) {
  const fs::path root = fs::path(testing::TempDir()) / "classifier-run";
  fs::remove_all(root);
  std::mt19937 random(11);
  for (const std::string name : {"one", "two"}) {
    fs::create_directories(root / name);
    for (int i = 0; i < 60; ++i) {
      std::ofstream out(root / name / std::to_string(i));
      for (int word = 0; word < 80; ++word) {
        const char base = name == "one" ? 'a' : 'n';
        for (int letter = 0; letter < 5; ++letter) out << static_cast<char>(base + random() % 12);
        out << ' ';
      }
    }
  }
  const auto seen =
      RunClassifier("--ranks 2 --batch 4 --epochs 2 --bucket-bits 16 --corpus " + root.string());
  ExpectSound(seen);
  EXPECT_GT(seen["accuracy"], 0.95);
  EXPECT_GT(seen["gradient_sparsity"], 0.5);
  fs::remove_all(root);
}

TEST(Classifier, WrongUseIsExitCodeOne) {
  for (const std::string arguments : {"--bogus", "--rate 0", "--ranks 2 --nodes 3"}) {
    int code = -1;
    const std::string output = Printed(arguments + " 2>&1", &code);
    EXPECT_EQ(code, 1) << arguments;
    EXPECT_EQ(output.find("classifier: "), 0u) << output;
  }
}

TEST(Classifier, WhatCannotBePrintedIsAFailure) {
  int code = -1;
  EXPECT_EQ(Printed("--help 2>&1 >/dev/full", &code).find("classifier: standard output could not"),
            0u);
  EXPECT_EQ(code, 2);
}

// The text that this machine has: manual pages or package descriptions.
TEST(Classifier, BeatsChanceOnRealText) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "made-up text runs the same threads, in a fiftieth of the time";
#endif
  const auto corpus = classifier::LoadCorpus("auto", 120);
  if (!corpus.ok()) GTEST_SKIP() << corpus.status().message();
  const auto seen =
      RunClassifier("--ranks 2 --batch 4 --epochs 3 --bucket-bits 17 --per-class 120");
  ExpectSound(seen);
  EXPECT_GT(seen["accuracy"].get<double>(), seen["chance"].get<double>() + 0.1);
  EXPECT_GT(seen["gradient_sparsity"], 0.9);
}

}  // namespace
