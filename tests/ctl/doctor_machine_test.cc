// The checks of limits, memory, namespaces and the kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/doctor.h"
#include "tests/ctl/fake_machine.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class DoctorMachineTest : public ::testing::Test {
 protected:
  void Limit(const std::string& soft) {
    fake_.Put("/proc/7/limits",
              "Limit                     Soft Limit           Hard Limit           Units\n"
              "Max locked memory         " +
                  soft + "                " + soft + "                bytes\n");
  }
  void Capabilities(const std::string& bits) {
    fake_.Put("/proc/7/status", "Name:\tspccld\nCapEff:\t" + bits + "\n");
  }

  const FakeMachine fake_;
  const Machine& machine_ = fake_.machine;
};

TEST_F(DoctorMachineTest, LockedMemoryIsTheDaemonsWhereItCanBeRead) {
  Limit("65536");
  const Check check = CheckMemlock(machine_, 7, 0);
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_EQ(check.found, "the daemon's limit is 64.0 KiB");
  Limit("unlimited");
  EXPECT_EQ(CheckMemlock(machine_, 7, 8 * kGiB).verdict, Verdict::kOk);
  EXPECT_THAT(CheckMemlock(machine_, 8, 0).found, HasSubstr("this shell's"));
}

TEST_F(DoctorMachineTest, LockedMemoryMustHoldWhatIsRegistered) {
  Limit(std::to_string(kGiB));
  EXPECT_EQ(CheckMemlock(machine_, 7, kGiB / 2).verdict, Verdict::kOk);
  const Check less = CheckMemlock(machine_, 7, 2 * kGiB);
  EXPECT_EQ(less.verdict, Verdict::kWarning);
  EXPECT_THAT(less.found, HasSubstr("2.0 GiB registered"));
  Capabilities("0000000000004000");  // CAP_IPC_LOCK
  EXPECT_EQ(CheckMemlock(machine_, 7, 2 * kGiB).verdict, Verdict::kOk);
  Capabilities("0000000000000000");
  fake_.Put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  EXPECT_EQ(CheckMemlock(machine_, 7, 2 * kGiB).verdict, Verdict::kFailed);  // there it pins
}

TEST_F(DoctorMachineTest, SharedMemory) {
  EXPECT_THAT(CheckSharedMemory(machine_).found, HasSubstr("free in " + machine_.shm));
  Machine none = machine_;
  none.shm += "/none";
  EXPECT_EQ(CheckSharedMemory(none).verdict, Verdict::kFailed);
}

TEST_F(DoctorMachineTest, Memory) {
  EXPECT_EQ(CheckMemory(machine_).verdict, Verdict::kSkipped);
  fake_.Put("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   2097152 kB\nShmem: 1024 kB\n");
  EXPECT_EQ(CheckMemory(machine_).verdict, Verdict::kOk);
  EXPECT_EQ(CheckMemory(machine_).found, "2.0 GiB available, 1.0 MiB shared");
  fake_.Put("/proc/meminfo", "MemAvailable: 1024 kB\n");
  EXPECT_EQ(CheckMemory(machine_).verdict, Verdict::kWarning);
}

TEST_F(DoctorMachineTest, HugePages) {
  const Check unknown = CheckHugePages(machine_, true);
  EXPECT_EQ(unknown.verdict, Verdict::kOk);
  EXPECT_THAT(unknown.found, HasSubstr("not known"));
  fake_.Put("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size advise never [deny] force\n");
  const Check denied = CheckHugePages(machine_, false);
  EXPECT_EQ(denied.verdict, Verdict::kWarning);
  EXPECT_THAT(denied.found, HasSubstr("shmem_enabled is deny"));
}

TEST_F(DoctorMachineTest, Namespaces) {
  EXPECT_EQ(CheckNamespaces(machine_, std::nullopt).verdict, Verdict::kSkipped);
  EXPECT_THAT(CheckNamespaces(machine_, 7).found, HasSubstr("cannot be read"));
  for (const std::string kind : {"pid", "user", "net", "ipc"}) {
    fake_.Link("/proc/self/ns/" + kind, kind + ":[1]");
    fake_.Link("/proc/7/ns/" + kind, kind + ":[1]");
    fake_.Link("/proc/8/ns/" + kind, kind + (kind == "net" ? ":[2]" : ":[1]"));
    fake_.Link("/proc/9/ns/" + kind, kind + (kind == "pid" ? ":[2]" : ":[1]"));
  }
  EXPECT_EQ(CheckNamespaces(machine_, 7).verdict, Verdict::kOk);
  const Check network = CheckNamespaces(machine_, 8);
  EXPECT_EQ(network.verdict, Verdict::kOk);
  EXPECT_EQ(network.found, "the daemon has others: net");
  const Check process = CheckNamespaces(machine_, 9);
  EXPECT_EQ(process.verdict, Verdict::kWarning);
  EXPECT_THAT(process.remedy, HasSubstr("--pid=host"));
}

TEST_F(DoctorMachineTest, KernelFeatures) {
  for (const Check& check : CheckKernel({})) EXPECT_EQ(check.verdict, Verdict::kOk) << check.name;
  const std::vector<Check> checks =
      CheckKernel({.memfd_seals = "a", .pidfd = "b", .reads_own = "Operation not permitted"});
  for (const Check& check : checks) EXPECT_EQ(check.verdict, Verdict::kFailed) << check.name;
  EXPECT_EQ(checks.back().found, "Operation not permitted");
}

}  // namespace
}  // namespace spccl::ctl
