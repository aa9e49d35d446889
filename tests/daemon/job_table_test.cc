#include "daemon/job_table.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kLogin[] = "0::/user.slice/user-1000.slice/session-2.scope\n";

class JobTableTest : public ::testing::Test {
 protected:
  std::unique_ptr<JobTable> Open() {
    auto table = JobTable::Create(path_);
    EXPECT_THAT(table, IsOk());
    return *std::move(table);
  }
  static Peer Client(uid_t uid, std::string cgroup,
                     std::optional<uint64_t> step_job = std::nullopt) {
    Peer peer;
    peer.uid = uid;
    peer.cgroup = std::move(cgroup);
    peer.step_job = step_job;
    return peer;
  }
  std::string FoundIn(const JobTable& table, const Peer& peer) {
    const auto job = table.Find(peer);
    return job ? job->id() : "none";
  }

  const spccl::testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/jobs";
};

TEST_F(JobTableTest, KeepsJobsOverARestart) {
  auto table = Open();
  EXPECT_THAT(table->List(), IsEmpty());
  const RegisteredJob first{.number = 77, .uid = 1000, .cgroup = "/a/job_77"};
  const RegisteredJob second{.number = 78, .uid = 1001, .cgroup = ""};
  EXPECT_THAT(table->Register(first), IsOk());
  EXPECT_THAT(table->Register(second), IsOk());
  EXPECT_THAT(table->Register(second), IsOk());  // once more is fine
  EXPECT_THAT(Open()->List(), ElementsAre(first, second));
  const auto ended = table->End(77, 1000);
  ASSERT_THAT(ended, IsOk());
  EXPECT_TRUE(*ended);
  EXPECT_FALSE(*table->End(77, 1000));
  EXPECT_THAT(Open()->List(), ElementsAre(second));
  EXPECT_EQ(second.id(), "u1001.j78");
}

TEST_F(JobTableTest, AJobIsOverThoughThatCannotBeWritten) {
  const std::string folder = folder_.path() + "/state", moved = folder_.path() + "/moved";
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  auto table = JobTable::Create(folder + "/jobs");
  ASSERT_THAT(table, IsOk());
  const RegisteredJob first{.number = 77, .uid = 1000, .cgroup = ""};
  const RegisteredJob second{.number = 78, .uid = 1001, .cgroup = ""};
  ASSERT_THAT((*table)->Register(first), IsOk());
  std::filesystem::rename(folder, moved);
  EXPECT_EQ((*table)->Register(second).code(), absl::StatusCode::kFailedPrecondition);
  const auto ended = (*table)->End(77, 1000);
  ASSERT_THAT(ended, IsOk());
  EXPECT_TRUE(*ended);
  EXPECT_THAT((*table)->List(), IsEmpty());
  std::filesystem::rename(moved, folder);
  ASSERT_THAT((*table)->Register(second), IsOk());
  EXPECT_THAT((*JobTable::Create(folder + "/jobs"))->List(), ElementsAre(second));
}

TEST_F(JobTableTest, RefusesWhatCannotBe) {
  auto table = Open();
  const auto code = [&](const RegisteredJob& job) { return table->Register(job).code(); };
  using absl::StatusCode;
  EXPECT_EQ(code({.number = 0, .uid = 1, .cgroup = ""}), StatusCode::kInvalidArgument);
  for (const std::string& group :
       {std::string("/"), std::string("a/b"), std::string("/a b"), std::string("/a\n/b"),
        std::string("/a/"), std::string(2000, '/'), "/" + std::string(2000, 'a')}) {
    EXPECT_EQ(code({.number = 1, .uid = 1, .cgroup = group}), StatusCode::kInvalidArgument)
        << group;
  }
  EXPECT_THAT(table->Register({.number = 5, .uid = 1, .cgroup = ""}), IsOk());
  EXPECT_EQ(code({.number = 5, .uid = 2, .cgroup = ""}), StatusCode::kAlreadyExists);
  EXPECT_EQ(table->End(5, 2).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(table->List().size(), 1u);
}

TEST_F(JobTableTest, AFileThatHoldsSomethingElseIsNamedWithItsLine) {
  std::ofstream(path_) << "77 1000\nrubbish\n";
  const auto table = JobTable::Create(path_);
  EXPECT_THAT(std::string(table.status().message()), HasSubstr(path_ + ":2: expected NUMBER UID"));
}

TEST_F(JobTableTest, AProcessIsOfTheJobWhoseGroupItIsIn) {
  auto table = Open();
  EXPECT_THAT(table->Register({.number = 7, .uid = 1000, .cgroup = "/slurm/xyz"}), IsOk());
  EXPECT_THAT(table->Register({.number = 8, .uid = 1000, .cgroup = "/slurm/xy"}), IsOk());
  EXPECT_EQ(FoundIn(*table, Client(1000, "0::/slurm/xyz/step_0\n")), "u1000.j7");
  EXPECT_EQ(FoundIn(*table, Client(1000, "4:memory:/x\n0::/slurm/xy\n")), "u1000.j8");
  EXPECT_EQ(FoundIn(*table, Client(1000, "0::/slurm/xyzzy\n")), "none");
  EXPECT_EQ(FoundIn(*table, Client(1001, "0::/slurm/xyz/step_0\n")), "none");  // another user
}

TEST_F(JobTableTest, WithoutGroupsByItsParentsOrAsItsUsersOnlyJob) {
  auto table = Open();
  EXPECT_THAT(table->Register({.number = 7, .uid = 1000, .cgroup = ""}), IsOk());
  EXPECT_EQ(FoundIn(*table, Client(1000, kLogin)), "u1000.j7");
  EXPECT_EQ(FoundIn(*table, Client(1001, kLogin)), "none");
  EXPECT_THAT(table->Register({.number = 8, .uid = 1000, .cgroup = ""}), IsOk());
  EXPECT_EQ(FoundIn(*table, Client(1000, kLogin)), "none");  // either
  EXPECT_EQ(FoundIn(*table, Client(1000, kLogin, 8)), "u1000.j8");
  EXPECT_EQ(FoundIn(*table, Client(1001, kLogin, 8)), "none");   // another user's
  EXPECT_EQ(FoundIn(*table, Client(1000, kLogin, 99)), "none");  // not registered
}

TEST_F(JobTableTest, HasByIdWhatIsRegistered) {
  auto table = Open();
  EXPECT_THAT(table->Register({.number = 7, .uid = 1000, .cgroup = ""}), IsOk());
  EXPECT_TRUE(table->Has("u1000.j7"));
  for (const char* other : {"u1001.j7", "u1000.j8", "u1000.s7", "u1000.j", "", "u1000.j07"}) {
    EXPECT_FALSE(table->Has(other)) << other;
  }
  EXPECT_THAT(table->End(7, 1000), IsOk());
  EXPECT_FALSE(table->Has("u1000.j7"));
}

TEST_F(JobTableTest, WhereTheGroupNamesAJobTheKernelDecides) {
  auto table = Open();
  EXPECT_THAT(table->Register({.number = 7, .uid = 1000, .cgroup = ""}), IsOk());
  EXPECT_EQ(FoundIn(*table, Client(1000, "0::/system.slice/slurmstepd.scope/job_9/step_0\n", 7)),
            "none");
}

}  // namespace
}  // namespace spccl::daemon
