#include "ctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/unique_fd.h"
#include "base/version.h"
#include "tests/ctl/run_tool.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    ::chmod(folder_.c_str(), 0755);
    machine_.proc = folder_ + "/proc";
    machine_.shm = folder_;
    std::filesystem::create_directories(machine_.proc + "/sys/kernel/yama");
    std::filesystem::create_directories(machine_.proc + "/7");
  }

  void Scope(const std::string& text) {
    std::ofstream(machine_.proc + "/sys/kernel/yama/ptrace_scope") << text;
  }
  Verdict Attach(std::optional<uid_t> uid) { return CheckCrossMemoryAttach(machine_, uid).verdict; }

  const spccl::testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  Machine machine_;
};

TEST_F(DoctorTest, RuntimeFolder) {
  EXPECT_EQ(CheckRuntimeDir(folder_).verdict, Verdict::kOk);
  EXPECT_THAT(CheckRuntimeDir(folder_ + "/none").found, HasSubstr("No such file"));
  EXPECT_EQ(CheckRuntimeDir(folder_ + "/none").verdict, Verdict::kFailed);
  ::chmod(folder_.c_str(), 0777);
  const Check open = CheckRuntimeDir(folder_);
  EXPECT_EQ(open.verdict, Verdict::kFailed);
  EXPECT_EQ(open.remedy, "chmod o-w " + folder_);
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THAT(CheckRuntimeDir(folder_ + "/file").found, HasSubstr("no folder"));
}

TEST_F(DoctorTest, Sockets) {
  EXPECT_THAT(CheckSocket(folder_, "control.sock").found, HasSubstr("No such file"));
  std::ofstream(folder_ + "/control.sock") << "x";
  EXPECT_THAT(CheckSocket(folder_, "control.sock").found, HasSubstr("is no socket"));
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (folder_ + "/session.sock").c_str());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(CheckSocket(folder_, "session.sock").verdict, Verdict::kOk);
}

TEST_F(DoctorTest, Daemon) {
  EXPECT_EQ(CheckDaemon(absl::UnavailableError("nobody")).verdict, Verdict::kFailed);
  v1::GetStatusResponse answer;
  answer.mutable_status()->set_health_detail("stuck");
  EXPECT_EQ(CheckDaemon(answer).verdict, Verdict::kFailed);
  EXPECT_THAT(CheckDaemon(answer).found, HasSubstr("stuck"));
  answer.mutable_status()->set_healthy(true);
  EXPECT_EQ(CheckDaemon(answer).verdict, Verdict::kOk);
  answer.mutable_status()->set_draining(true);
  EXPECT_EQ(CheckDaemon(answer).verdict, Verdict::kWarning);
  answer.mutable_status()->set_version("0.0.0");
  EXPECT_EQ(CheckVersion(answer.status()).verdict, Verdict::kWarning);
  answer.mutable_status()->set_version(kVersion);
  EXPECT_EQ(CheckVersion(answer.status()).verdict, Verdict::kOk);
}

TEST_F(DoctorTest, LockedMemoryIsTheDaemonsWhereItCanBeRead) {
  std::ofstream(machine_.proc + "/7/limits")
      << "Limit                     Soft Limit           Hard Limit           Units\n"
         "Max locked memory         65536                65536                bytes\n";
  const Check check = CheckMemlock(machine_, 7);
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_EQ(check.found, "the daemon's limit is 64.0 KiB");
  std::ofstream(machine_.proc + "/7/limits")
      << "Max locked memory         unlimited            unlimited            bytes\n";
  EXPECT_EQ(CheckMemlock(machine_, 7).verdict, Verdict::kOk);
  EXPECT_THAT(CheckMemlock(machine_, 8).found, HasSubstr("this shell's"));
}

TEST_F(DoctorTest, SharedMemory) {
  EXPECT_THAT(CheckSharedMemory(machine_).found, HasSubstr("free in " + folder_));
  machine_.shm = folder_ + "/none";
  EXPECT_EQ(CheckSharedMemory(machine_).verdict, Verdict::kFailed);
}

TEST_F(DoctorTest, CrossMemoryAttachByYamasScopeAndTheDaemonsUser) {
  EXPECT_EQ(Attach(1000), Verdict::kOk);  // no Yama
  Scope("0\n");
  EXPECT_EQ(Attach(1000), Verdict::kOk);
  Scope("1\n");
  EXPECT_EQ(Attach(1000), Verdict::kWarning);
  EXPECT_EQ(Attach(std::nullopt), Verdict::kWarning);
  EXPECT_EQ(Attach(0), Verdict::kOk);
  Scope("2\n");
  EXPECT_EQ(Attach(0), Verdict::kOk);
  Scope("3\n");
  EXPECT_EQ(Attach(0), Verdict::kWarning);
  EXPECT_THAT(CheckCrossMemoryAttach(machine_, 0).remedy, HasSubstr("reboot"));
}

TEST_F(DoctorTest, CodecTargets) {
  EXPECT_EQ(CheckCodecTarget("avx2", std::nullopt).verdict, Verdict::kOk);
  EXPECT_EQ(CheckCodecTarget("avx2", "avx2").verdict, Verdict::kOk);
  EXPECT_EQ(CheckCodecTarget("avx2", "plain").verdict, Verdict::kWarning);
}

TEST_F(DoctorTest, ThisKernelHasWhatIsNeeded) {
  for (const Check& check : CheckKernel()) {
    EXPECT_EQ(check.verdict, Verdict::kOk) << check.name << ": " << check.found;
  }
}

TEST_F(DoctorTest, AFailedCheckIsExitCodeThree) {
  const ToolRun text = RunArgs({"doctor", "--runtime-dir", folder_ + "/none"});
  EXPECT_EQ(text.code, kUnhealthy);
  EXPECT_THAT(text.out, HasSubstr("failed   daemon: "));
  EXPECT_THAT(text.out, HasSubstr("do:  start spccld"));
  const ToolRun json = RunArgs({"doctor", "-o", "json", "--runtime-dir", folder_ + "/none"});
  EXPECT_EQ(json.code, kUnhealthy);
  const nlohmann::json found = json.json();
  EXPECT_EQ(found.at("schema"), "spccl.v1");
  EXPECT_EQ(found.at("healthy"), false);
  for (const auto& check : found.at("checks")) {
    for (const char* member : {"name", "verdict", "found", "why"}) {
      EXPECT_FALSE(check.at(member).get<std::string>().empty()) << check;
    }
    EXPECT_EQ(check.at("verdict") == "ok", check.at("remedy") == "") << check;
  }
}

}  // namespace
}  // namespace spccl::ctl
