// A store of settings in a folder of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "daemon/settings_store.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {

class SettingsStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ + "/settings.toml"; }
  std::string Content() const {
    std::stringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }
  std::unique_ptr<SettingsStore> Open(policy::Settings defaults = {}) {
    absl::StatusOr<std::unique_ptr<SettingsStore>> store = SettingsStore::Create(folder_, defaults);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::string ErrorOf(const std::string& content) {
    std::ofstream(path()) << content;
    return std::string(SettingsStore::Create(folder_, {}).status().message());
  }
  // Runs `body` in a child process and returns its exit code.
  template <typename Body>
  static int InChild(Body body) {
    const pid_t child = ::fork();
    if (child == 0) _exit(body());
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const spccl::testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
};

inline policy::Overrides Intra(double value) {
  policy::Overrides overrides;
  overrides.pici.intra = value;
  return overrides;
}

inline policy::Overrides Everything() {
  policy::Overrides overrides;
  overrides.algorithm = policy::Algorithm::kRing;
  overrides.codec = policy::Codec::kPiciColumn;
  overrides.pici = {.intra = 0.1, .inter = 0.2, .ag = 0.3};
  overrides.coo = {.intra = 0.1 + 0.2, .inter = policy::kAutoThreshold, .ag = 0};
  return overrides;
}

}  // namespace spccl::daemon
