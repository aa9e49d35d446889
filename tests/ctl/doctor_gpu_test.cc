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
  std::map<std::string, Check> All(const GpuFacts& facts, const v1::Gpus* daemon = nullptr) {
    std::map<std::string, Check> checks;
    for (Check& check : CheckGpu(fake_.machine, facts, daemon)) {
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

v1::Gpus TwoGpus() {
  v1::Gpus gpus;
  gpus.set_driver("13.0");
  for (uint32_t i = 0; i < 2; ++i) {
    v1::Gpu& gpu = *gpus.add_gpus();
    gpu.set_name("NVIDIA H100");
    gpu.set_stream_operations(true);
    gpu.set_legacy_ipc(true);
    gpu.set_descriptors(true);
    gpu.set_mps(true);
    gpu.add_reaches(1 - i);
  }
  return gpus;
}

TEST_F(DoctorGpuTest, WhatTheDaemonSaysIsGood) {
  Driver();
  fake_.Put("/dev/nvidia0", "");
  fake_.Put("/tmp/nvidia-mps/control", "");
  v1::Gpus gpus = TwoGpus();
  gpus.set_has_nccl(true);
  gpus.set_nccl("NCCLX 2.28.9 (/opt/libnccl.so)");
  // The machine's own is not there: the daemon was told of another.
  const auto checks = All({.cuda = true, .nccl = false}, &gpus);
  for (const auto& [name, check] : checks) {
    EXPECT_EQ(check.verdict, Verdict::kOk) << name;
    EXPECT_EQ(check.remedy, "") << name;
  }
  EXPECT_EQ(checks.at("GPUs of spccld").found, "2 used, driver 13.0");
  EXPECT_EQ(checks.at("libnccl").found, "NCCLX 2.28.9 (/opt/libnccl.so)");
  EXPECT_THAT(checks.at("MPS").found, HasSubstr("2 of 2"));
}

TEST_F(DoctorGpuTest, NcclIsNotMissedWhereNobodyWantsIt) {
  Driver();
  fake_.Put("/dev/nvidia0", "");
  v1::Gpus gpus = TwoGpus();  // of a daemon that talks to no other nodes
  EXPECT_EQ(All({.cuda = true, .nccl = false}, &gpus).at("libnccl").verdict, Verdict::kOk);
  gpus.set_nccl("not used: gpu.between_nodes is host");
  EXPECT_EQ(All({.cuda = true, .nccl = false}, &gpus).at("libnccl").verdict, Verdict::kOk);
  gpus.set_nccl("NCCL cannot be loaded");
  const auto checks = All({.cuda = true, .nccl = true}, &gpus);
  EXPECT_EQ(checks.at("libnccl").verdict, Verdict::kWarning);
  EXPECT_THAT(checks.at("libnccl").remedy, HasSubstr("gpu.nccl"));
}

TEST_F(DoctorGpuTest, AGpuThatIsNotUsedBesideOthersIsAWarning) {
  Driver();
  v1::Gpus gpus = TwoGpus();
  gpus.add_refused("GPU 1: out of memory");
  const Check check = All({.cuda = true, .nccl = true}, &gpus).at("GPUs of spccld");
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_EQ(check.found, "2 used, driver 13.0; not used: the driver's GPU 1: out of memory");
  EXPECT_THAT(check.remedy, HasSubstr("restart spccld"));
}

TEST_F(DoctorGpuTest, WhatTheDaemonLacksAndWhatToDo) {
  Driver();
  fake_.Put("/tmp/nvidia-mps/control", "");
  v1::Gpus gpus = TwoGpus();
  for (v1::Gpu& gpu : *gpus.mutable_gpus()) gpu.set_mps(false);
  gpus.mutable_gpus(0)->clear_reaches();
  gpus.mutable_gpus(1)->set_stream_operations(false);
  gpus.mutable_gpus(1)->set_legacy_ipc(false);
  gpus.mutable_gpus(1)->set_failure("cuStreamQuery: an illegal address");
  const auto checks = All({.cuda = true, .nccl = true}, &gpus);
  EXPECT_EQ(checks.at("GPUs of spccld").verdict, Verdict::kFailed);
  EXPECT_THAT(checks.at("GPUs of spccld").found,
              HasSubstr("1 (cuStreamQuery: an illegal address)"));
  EXPECT_EQ(checks.at("GPU stream operations").verdict, Verdict::kFailed);
  EXPECT_EQ(checks.at("GPU hand-over").found, "no legacy handles on GPU 1");
  EXPECT_EQ(checks.at("GPU peer access").found, "not between 0 and 1");
  EXPECT_EQ(checks.at("MPS").verdict, Verdict::kWarning);
  for (const char* name :
       {"GPUs of spccld", "GPU stream operations", "GPU hand-over", "GPU peer access", "MPS"}) {
    EXPECT_NE(checks.at(name).remedy, "") << name;
  }
}

TEST_F(DoctorGpuTest, ADaemonThatUsesNoneSaysWhy) {
  Driver();
  v1::Gpus gpus;
  gpus.set_unused("kernels for GPUs: libspccl_device.so is not there");
  const auto checks = All({.cuda = true, .nccl = true}, &gpus);
  EXPECT_EQ(checks.at("GPUs of spccld").verdict, Verdict::kWarning);
  EXPECT_THAT(checks.at("GPUs of spccld").found, HasSubstr("libspccl_device.so is not there"));
  EXPECT_EQ(checks.count("GPU peer access"), 0u);
}

// Its driver may lie elsewhere, and in a container there is no /proc/driver.
TEST_F(DoctorGpuTest, ADriverThatTheDaemonUsesIsInOrderWhereNoneIsSeenHere) {
  const v1::Gpus gpus = TwoGpus();
  const Check check = All({.cuda = true, .nccl = true}, &gpus).at("GPU driver");
  EXPECT_EQ(check.verdict, Verdict::kOk);
  EXPECT_EQ(check.found, "spccld's is 13.0");
}

// The daemon knows it better.
TEST_F(DoctorGpuTest, WhatTheDaemonCannotUseIsAProblemWhateverIsSeenHere) {
  v1::Gpus gpus;
  gpus.set_use(v1::GPU_USE_UNUSABLE);
  gpus.set_unused("no kernels for GPUs: there is no libspccl_device.so");
  gpus.set_advice("install the package spccl-device");
  for (const bool seen : {false, true}) {
    if (seen) Driver();
    const auto checks = All({.cuda = true, .nccl = true}, &gpus);
    // What nobody has seen is not in order.
    EXPECT_EQ(checks.at("GPU driver").verdict, seen ? Verdict::kOk : Verdict::kSkipped);
    ASSERT_EQ(checks.count("GPUs of spccld"), 1u);
    const Check& check = checks.at("GPUs of spccld");
    EXPECT_EQ(check.verdict, Verdict::kWarning);
    EXPECT_EQ(check.found, "none: no kernels for GPUs: there is no libspccl_device.so");
    EXPECT_EQ(check.remedy, "install the package spccl-device");
  }
}

TEST_F(DoctorGpuTest, GpusThatAreTurnedOffOrNotThereAreNoProblem) {
  v1::Gpus gpus;
  gpus.set_unused("there is no CUDA driver");
  gpus.set_use(v1::GPU_USE_NONE);
  EXPECT_EQ(All({}, &gpus).size(), 1u);
  gpus.set_unused("gpu.enabled is off");
  gpus.set_use(v1::GPU_USE_OFF);
  EXPECT_EQ(All({}, &gpus).size(), 1u);
  Driver();
  const auto checks = All({.cuda = true, .nccl = true}, &gpus);
  EXPECT_EQ(checks.at("GPUs of spccld").verdict, Verdict::kOk);
  EXPECT_EQ(checks.at("GPUs of spccld").found, "none: gpu.enabled is off");
  // A driver that the daemon does not find is one.
  gpus.set_use(v1::GPU_USE_NONE);
  const auto found = All({.cuda = true, .nccl = true}, &gpus);
  EXPECT_EQ(found.at("GPUs of spccld").verdict, Verdict::kWarning);
  EXPECT_NE(found.at("GPUs of spccld").remedy, "");
}

}  // namespace
}  // namespace spccl::ctl
