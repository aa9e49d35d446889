// The checks of GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ctl/doctor.h"
#include "tests/ctl/fake_machine.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

class DoctorGpuTest : public ::testing::Test {
 protected:
  void Driver() {
    fake_.Put("/proc/driver/nvidia/version", "NVRM version: NVIDIA Kernel Module  580.65\n");
  }
  std::map<std::string, Check> All(const GpuFacts& facts) {
    std::map<std::string, Check> checks;
    for (Check& check : CheckGpu(fake_.machine, facts)) {
      const std::string name = check.name;
      checks.emplace(name, std::move(check));
    }
    return checks;
  }

  const FakeMachine fake_;
};

TEST_F(DoctorGpuTest, WithoutADriverAllIsSkipped) {
  const auto checks = All({.cuda = false, .nccl = false});
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks.at("GPU driver").verdict, Verdict::kSkipped);
  EXPECT_THAT(checks.at("GPU driver").found, HasSubstr("no GPU"));
}

TEST_F(DoctorGpuTest, AllInPlace) {
  Driver();
  fake_.Put("/dev/nvidia0", "");
  fake_.Put("/dev/nvidiactl", "");
  const auto checks = All({.cuda = true, .nccl = true});
  for (const auto& [name, check] : checks) EXPECT_EQ(check.verdict, Verdict::kOk) << name;
  EXPECT_THAT(checks.at("GPU driver").found, HasSubstr("580.65"));
  EXPECT_EQ(checks.at("GPU devices").found, "nvidia0");
  EXPECT_THAT(checks.at("MIG").found, HasSubstr("no card is cut"));
  EXPECT_THAT(checks.at("MPS").found, HasSubstr("does not run"));
}

TEST_F(DoctorGpuTest, WhatIsMissing) {
  Driver();
  const auto checks = All({.cuda = false, .nccl = false});
  for (const char* name : {"GPU devices", "libcuda", "libnccl"}) {
    EXPECT_EQ(checks.at(name).verdict, Verdict::kWarning) << name;
    EXPECT_NE(checks.at(name).remedy, "") << name;
  }
}

TEST_F(DoctorGpuTest, WhatCardsAreSharedBy) {
  Driver();
  fake_.Put("/dev/nvidia0", "");
  fake_.Put("/tmp/nvidia-mps/control", "");
  for (const std::string name : {"gi1/access", "gi2/access", "config"}) {
    fake_.Put("/proc/driver/nvidia/capabilities/gpu0/mig/" + name, "");
  }
  const auto checks = All({.cuda = true, .nccl = true});
  EXPECT_EQ(checks.at("MIG").found, "cut: gpu0 into 2");
  EXPECT_THAT(checks.at("MPS").found, HasSubstr("is there"));
}

}  // namespace
}  // namespace spccl::ctl
