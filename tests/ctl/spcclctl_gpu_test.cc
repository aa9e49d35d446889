// What the tool says of the GPUs of a real daemon, and what the daemon's log says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/daemon_env.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SpawnedDaemon;

class SpcclctlGpuTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags) {
    auto started = SpawnedDaemon::Start(std::move(flags));
    ASSERT_TRUE(started.ok()) << started.status();
    daemon_ = *std::move(started);
  }
  std::string Tool(const std::string& arguments) {
    const auto self = std::filesystem::canonical("/proc/self/exe");
    const std::string binary = self.parent_path().parent_path() / "bin/spcclctl";
    const std::string command =
        binary + " --runtime-dir " + daemon_->runtime_dir() + " " + arguments;
    FILE* const output = ::popen(command.c_str(), "r");
    EXPECT_NE(output, nullptr);
    std::string text;
    for (char block[4096]; std::fgets(block, sizeof block, output) != nullptr;) text += block;
    ::pclose(output);
    return text;
  }
  // The doctor's check of that name; null if there is none.
  nlohmann::json Check(const std::string& name) {
    const auto found = nlohmann::json::parse(Tool("doctor -o json"), nullptr, false);
    EXPECT_FALSE(found.is_discarded());
    if (found.is_discarded()) return nullptr;
    for (const nlohmann::json& check : found["checks"]) {
      if (check["name"] == name) return check;
    }
    return nullptr;
  }
  nlohmann::json Gpus() {
    auto found = nlohmann::json::parse(Tool("status -o json"), nullptr, false);
    EXPECT_FALSE(found.is_discarded());
    return found.is_discarded() ? nullptr : found["status"]["gpus"];
  }

  std::unique_ptr<SpawnedDaemon> daemon_;
};

TEST_F(SpcclctlGpuTest, KernelsThatAreMissingAreAProblemThatEverybodySees) {
  ASSERT_NO_FATAL_FAILURE(Start(
      {"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels", "/nowhere/libspccl_device.so"}));
  EXPECT_THAT(
      daemon_->ReadLog(),
      AllOf(ContainsRegex(
                " warning gpu: GPUs are not used[^\n]*there is no /nowhere/[^\n]*spccl-device"),
            Not(HasSubstr("no GPU is used"))));
  EXPECT_THAT(Tool("status"), ContainsRegex("\ngpus +not used: [^\n]*/nowhere/[^\n]*\n"));
  EXPECT_EQ(Gpus()["use"], "unusable");
  EXPECT_THAT(Gpus()["advice"].get<std::string>(), HasSubstr("gpu.kernels"));
  const nlohmann::json check = Check("GPUs of spccld");
  ASSERT_TRUE(check.is_object());
  EXPECT_EQ(check["verdict"], "warning");
  EXPECT_THAT(check["found"].get<std::string>(), HasSubstr("/nowhere/"));
  EXPECT_THAT(check["remedy"].get<std::string>(), HasSubstr("spccl-device"));
}

TEST_F(SpcclctlGpuTest, GpusThatAreUsedAreListed) {
  ASSERT_NO_FATAL_FAILURE(
      Start({"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels", SPCCL_FAKE_DEVICE_LIBRARY}));
  EXPECT_THAT(Tool("status"), ContainsRegex("\ngpus +2 used, driver "));
  EXPECT_EQ(Gpus()["use"], "used");
  EXPECT_THAT(daemon_->ReadLog(), Not(HasSubstr("not used")));
  const nlohmann::json check = Check("GPUs of spccld");
  ASSERT_TRUE(check.is_object());
  EXPECT_EQ(check["verdict"], "ok");
}

TEST_F(SpcclctlGpuTest, GpusThatAreTurnedOffAreNoProblem) {
  ASSERT_NO_FATAL_FAILURE(Start({"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels",
                                 SPCCL_FAKE_DEVICE_LIBRARY, "--gpu-enabled", "off"}));
  EXPECT_THAT(daemon_->ReadLog(), Not(HasSubstr("warning gpu")));
  EXPECT_THAT(Tool("status"), ContainsRegex("\ngpus +not used: gpu.enabled is off\n"));
  EXPECT_EQ(Gpus()["use"], "off");
  const nlohmann::json check = Check("GPUs of spccld");
  // This machine may have some.
  EXPECT_TRUE(check.is_null() || check["verdict"] == "ok") << check;
}

TEST_F(SpcclctlGpuTest, ThatFramesBetweenNodesGoThroughTheHostIsSaidWhereItIsSet) {
  ASSERT_NO_FATAL_FAILURE(
      Start({"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels", SPCCL_FAKE_DEVICE_LIBRARY,
             "--peers-listen", "127.0.0.1:0", "--gpu-between-nodes", "host"}));
  const std::string reason = "not used: gpu.between_nodes is host";
  EXPECT_THAT(daemon_->ReadLog(),
              ContainsRegex(" info gpu: frames between nodes go through the host[^\n]*" + reason));
  EXPECT_THAT(Tool("status"), HasSubstr(reason));
  const nlohmann::json check = Check("libnccl");
  ASSERT_TRUE(check.is_object());
  EXPECT_EQ(check["verdict"], "ok");
  EXPECT_EQ(check["found"], reason);
}

// A driver is there, by the system's name, but no GPU.
TEST_F(SpcclctlGpuTest, AMachineWithoutGpusIsTheUsualCase) {
  if (std::filesystem::exists("/proc/driver/nvidia")) GTEST_SKIP() << "this machine has GPUs";
  ::setenv("SPCCL_FAKE_GPUS", "0", 1);
  ::setenv("LD_LIBRARY_PATH", SPCCL_SYSTEM_CUDA_FOLDER, 1);
  ASSERT_NO_FATAL_FAILURE(Start({"--gpu-kernels", "/nowhere/libspccl_device.so"}));
  ::unsetenv("SPCCL_FAKE_GPUS");
  ::unsetenv("LD_LIBRARY_PATH");
  EXPECT_THAT(daemon_->ReadLog(),
              AllOf(ContainsRegex(" info gpu: no GPU is used[^\n]*finds no GPU"),
                    Not(HasSubstr("warning gpu"))));
  EXPECT_THAT(Tool("status"), HasSubstr("\ngpus          none\n"));
  EXPECT_EQ(Gpus()["use"], "none");
  EXPECT_TRUE(Check("GPUs of spccld").is_null());
}

}  // namespace
}  // namespace spccl
