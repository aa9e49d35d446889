// The checks of Slurm's hooks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/doctor.h"
#include "tests/ctl/fake_machine.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

class DoctorSlurmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string kind : {"prolog", "epilog", "taskprolog"}) {
      fake_.MakeExecutable(Script(kind), "#!/bin/bash\n# spccl's\n");
    }
  }
  static std::string Script(const std::string& kind) { return "/hooks/" + kind + ".d/50-spccl"; }
  void Conf(const std::string& text) { fake_.Put("/etc/slurm/slurm.conf", text); }
  std::string Lines() const {
    const std::string hooks = fake_.root + "/hooks";
    return "# Prolog=/none\nClusterName=x\nprolog = " + hooks + "/prolog.d/*\nEpilog=" + hooks +
           "/epilog.d/*   # ours\nTaskProlog=" + hooks + "/taskprolog.d/50-spccl\n";
  }
  std::vector<Check> All() { return CheckSlurm(fake_.machine); }

  const FakeMachine fake_;
};

TEST_F(DoctorSlurmTest, NoSlurm) {
  const std::vector<Check> checks = All();
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].verdict, Verdict::kSkipped);
}

TEST_F(DoctorSlurmTest, AllInPlace) {
  Conf(Lines() + "PrologFlags=Alloc\n");
  const std::vector<Check> checks = All();
  ASSERT_EQ(checks.size(), 4u);
  for (const Check& check : checks) EXPECT_EQ(check.verdict, Verdict::kOk) << check.name;
  EXPECT_THAT(checks[0].found, HasSubstr("/hooks/prolog.d/50-spccl"));
}

TEST_F(DoctorSlurmTest, FetchedFromTheController) {
  fake_.Put("/run/slurm/conf/slurm.conf", Lines() + "PrologFlags=contain\n");
  for (const Check& check : All()) EXPECT_EQ(check.verdict, Verdict::kOk) << check.name;
}

TEST_F(DoctorSlurmTest, NotConfigured) {
  Conf("Prolog=" + fake_.MakeExecutable("/other.sh", "#!/bin/sh\n") + "\n");
  const std::vector<Check> checks = All();
  for (const Check& check : checks) EXPECT_EQ(check.verdict, Verdict::kWarning) << check.name;
  EXPECT_THAT(checks[0].found, HasSubstr("runs none of ours"));
  EXPECT_EQ(checks[1].found, "Epilog is not set");
}

TEST_F(DoctorSlurmTest, AScriptOfTheSitesOwnMayCallOurs) {
  Conf(Lines() + "TaskProlog=" +
       fake_.MakeExecutable("/own.sh", "#!/bin/sh\nexec /usr/libexec/spccl/x\n") + "\n");
  EXPECT_THAT(All().at(2).found, HasSubstr("/own.sh"));
}

TEST_F(DoctorSlurmTest, NotExecutable) {
  Conf(Lines() + "PrologFlags=Alloc\n");
  std::filesystem::permissions(fake_.root + Script("epilog"), std::filesystem::perms(0644));
  const Check check = All().at(1);
  EXPECT_EQ(check.verdict, Verdict::kFailed);
  EXPECT_THAT(check.remedy, HasSubstr("chmod 0755 "));
}

}  // namespace
}  // namespace spccl::ctl
