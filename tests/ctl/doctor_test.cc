#include "ctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/version.h"
#include "tests/ctl/run_tool.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kDaemon = 4711, kStranger = 4712;

PathFacts Folder(mode_t mode, uid_t uid = 0) {
  return {.mode = S_IFDIR | mode, .uid = uid, .may_enter = true, .may_write = true};
}
PathFacts Socket(mode_t mode = 0666) {
  return {.mode = S_IFSOCK | mode, .uid = kDaemon, .may_enter = true, .may_write = true};
}

TEST(DoctorTest, RuntimeFolder) {
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0755), kDaemon).verdict, Verdict::kOk);
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0755, kDaemon), kDaemon).verdict, Verdict::kOk);
  const Check strange = CheckRuntimeDir("/x", Folder(0755, kStranger), kDaemon);
  EXPECT_EQ(strange.verdict, Verdict::kFailed);
  EXPECT_THAT(strange.found, HasSubstr("owner uid 4712"));
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0755, kDaemon), std::nullopt).verdict, Verdict::kFailed);
  const Check open = CheckRuntimeDir("/x", Folder(0777), kDaemon);
  EXPECT_EQ(open.verdict, Verdict::kFailed);
  EXPECT_EQ(open.remedy, "chmod go-w /x");
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0757), kDaemon).remedy, "chmod o-w /x");
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0775), kDaemon).verdict, Verdict::kWarning);
  PathFacts closed = Folder(0700);
  closed.may_enter = false;
  EXPECT_THAT(CheckRuntimeDir("/x", closed, kDaemon).found, HasSubstr("may not enter"));
  EXPECT_THAT(CheckRuntimeDir("/x", {.error = ENOENT}, kDaemon).found, HasSubstr("No such file"));
  EXPECT_EQ(CheckRuntimeDir("/x", {.error = ENOENT}, kDaemon).verdict, Verdict::kFailed);
  EXPECT_THAT(CheckRuntimeDir("/x", {.mode = S_IFREG}, kDaemon).found, HasSubstr("no folder"));
}

TEST(DoctorTest, Sockets) {
  const PathFacts folder = Folder(0755, kDaemon);
  const absl::StatusOr<Listener> daemon = Listener{.pid = 7, .uid = kDaemon};
  const std::string path = "/x/control.sock";
  const Check fine = CheckSocket(path, Socket(), folder, daemon);
  EXPECT_EQ(fine.verdict, Verdict::kOk);
  EXPECT_EQ(fine.name, "control.sock");
  EXPECT_THAT(fine.found, AllOf(HasSubstr("mode 0666"), HasSubstr("uid 4711"), HasSubstr("pid 7")));
  EXPECT_THAT(CheckSocket(path, {.error = ENOENT}, folder, daemon).found,
              HasSubstr("No such file"));
  EXPECT_THAT(CheckSocket(path, Folder(0755), folder, daemon).found, HasSubstr("is no socket"));
  PathFacts closed = Socket(0600);
  closed.may_write = false;
  EXPECT_THAT(CheckSocket(path, closed, folder, daemon).remedy, HasSubstr("chmod 0666"));
  const Check dead = CheckSocket(path, Socket(), folder, absl::UnavailableError("refused"));
  EXPECT_EQ(dead.verdict, Verdict::kFailed);
  EXPECT_THAT(dead.found, HasSubstr("nobody listens: refused"));
  const Check other = CheckSocket(path, Socket(), folder, Listener{.pid = 8, .uid = kStranger});
  EXPECT_EQ(other.verdict, Verdict::kFailed);
  EXPECT_THAT(other.found, HasSubstr("uid 4712 listens (pid 8)"));
  EXPECT_THAT(CheckSocket(path, Socket(), folder, Listener{.pid = 0, .uid = 0}).found,
              HasSubstr("another process namespace"));
}

// A daemon for all that others do not reach; a user's own may be private.
TEST(DoctorTest, WhatIsClosedToOthersIsAWarning) {
  constexpr uid_t kSystem = 999;
  const Check folder = CheckRuntimeDir("/x", Folder(0700), 0);
  EXPECT_EQ(folder.verdict, Verdict::kWarning);
  EXPECT_EQ(folder.remedy, "chmod go+rx /x");
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0700, kSystem), kSystem).verdict, Verdict::kWarning);
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0700), std::nullopt).verdict, Verdict::kWarning);
  EXPECT_EQ(CheckRuntimeDir("/x", Folder(0700, kDaemon), kDaemon).verdict, Verdict::kOk);
  PathFacts groups = Folder(0750);
  EXPECT_EQ(CheckRuntimeDir("/x", groups, 0).verdict, Verdict::kWarning);
  groups.gid = 100;  // somebody chose who may
  EXPECT_EQ(CheckRuntimeDir("/x", groups, 0).verdict, Verdict::kOk);
  const std::string path = "/x/session.sock";
  const Check closed = CheckSocket(path, Socket(0600), Folder(0755), Listener{.pid = 7, .uid = 0});
  EXPECT_EQ(closed.verdict, Verdict::kWarning);
  EXPECT_THAT(closed.remedy, HasSubstr("chmod 0666 /x/session.sock"));
  EXPECT_EQ(
      CheckSocket(path, Socket(0600), Folder(0700, kDaemon), Listener{.uid = kDaemon}).verdict,
      Verdict::kOk);
}

// Who may not look has no word on whether it runs.
TEST(DoctorTest, WhatIsClosedToTheCallerNeedNotBeStarted) {
  const PathFacts closed = {.error = EACCES};
  for (const Check& check :
       {CheckRuntimeDir("/x", closed, std::nullopt),
        CheckSocket("/x/session.sock", closed, Folder(0700), absl::PermissionDeniedError("no")),
        CheckDaemon(absl::PermissionDeniedError("no daemon at /x/control.sock"))}) {
    EXPECT_EQ(check.verdict, Verdict::kFailed) << check.name;
    EXPECT_THAT(check.remedy, Not(HasSubstr("start spccld"))) << check.name;
  }
  EXPECT_THAT(
      CheckSocket("/x/session.sock", {.error = ENOENT}, Folder(0755), absl::NotFoundError("none"))
          .remedy,
      HasSubstr("start spccld"));
}

TEST(DoctorTest, Daemon) {
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

TEST(DoctorTest, ClientLibrary) {
  LibraryFacts library;
  EXPECT_EQ(CheckClientLibrary(library, true, false).verdict, Verdict::kSkipped);
  library = {.found = true, .version_code = 10203, .reached = true, .error = ""};
  EXPECT_EQ(CheckClientLibrary(library, true, false).verdict, Verdict::kOk);
  EXPECT_THAT(CheckClientLibrary(library, true, false).found, HasSubstr("libspccl 1.2.3"));
  library = {.found = true, .version_code = 1, .error = "speaks version 9 of the protocol"};
  EXPECT_EQ(CheckClientLibrary(library, false, false).verdict, Verdict::kSkipped);
  EXPECT_EQ(CheckClientLibrary(library, true, true).verdict, Verdict::kSkipped);
  const Check refused = CheckClientLibrary(library, true, false);
  EXPECT_EQ(refused.verdict, Verdict::kFailed);
  EXPECT_THAT(refused.found, HasSubstr("speaks version 9"));
}

TEST(DoctorTest, CodecTargets) {
  EXPECT_EQ(CheckCodecTarget("avx2", std::nullopt).verdict, Verdict::kOk);
  EXPECT_EQ(CheckCodecTarget("avx2", "avx2").verdict, Verdict::kOk);
  EXPECT_EQ(CheckCodecTarget("avx2", "plain").verdict, Verdict::kWarning);
}

TEST(DoctorTest, Configuration) {
  const absl::Status taken;
  EXPECT_EQ(CheckConfig(DaemonConfig{}, taken).verdict, Verdict::kOk);
  const Check bad = CheckConfig(absl::InvalidArgumentError("/etc/x.toml:3:1: not TOML"), taken);
  EXPECT_EQ(bad.verdict, Verdict::kFailed);
  EXPECT_THAT(bad.found, HasSubstr("x.toml:3:1"));
  EXPECT_EQ(CheckConfig(absl::PermissionDeniedError("closed"), taken).verdict, Verdict::kSkipped);
  const DaemonConfig file{.path = "/etc/x.toml", .fields = {{"op_timeot", "1m"}}};
  EXPECT_EQ(CheckConfig(file, taken).found, "/etc/x.toml, 1 field");
  const Check refused = CheckConfig(file, absl::InvalidArgumentError("unknown field op_timeot"));
  EXPECT_EQ(refused.verdict, Verdict::kFailed);
  EXPECT_EQ(refused.found, "unknown field op_timeot");
  const Check unasked = CheckConfig(file, absl::UnavailableError("no spccld"));
  EXPECT_EQ(unasked.verdict, Verdict::kOk);
  EXPECT_THAT(unasked.found, HasSubstr("only its syntax was checked"));
}

TEST(DoctorTest, AFailedCheckIsExitCodeThree) {
  const spccl::testing::TempFolder folder;
  const std::string none = folder.path() + "/none";
  const ToolRun text = RunArgs({"doctor", "--runtime-dir", none});
  EXPECT_EQ(text.code, kUnhealthy);
  EXPECT_THAT(text.out, HasSubstr("failed   daemon: "));
  const size_t counts = text.out.rfind('\n', text.out.size() - 2) + 1;
  const std::string failed = text.out.substr(counts, text.out.find(' ', counts) - counts);
  EXPECT_EQ(text.err,
            "spcclctl: " + failed + (failed == "1" ? " check failed\n" : " checks failed\n"));
  EXPECT_THAT(text.out, HasSubstr("do:  start spccld"));
  const ToolRun json = RunArgs({"doctor", "-o", "json", "--runtime-dir", none});
  EXPECT_EQ(json.code, kUnhealthy);
  const nlohmann::json found = json.json();
  EXPECT_EQ(found.at("schema"), "spccl.v1");
  EXPECT_EQ(found.at("healthy"), false);
  for (const auto& check : found.at("checks")) {
    for (const char* member : {"name", "verdict", "found", "why"}) {
      EXPECT_FALSE(check.at(member).get<std::string>().empty()) << check;
    }
    const bool idle = check.at("verdict") == "ok" || check.at("verdict") == "skipped";
    EXPECT_EQ(idle, check.at("remedy") == "") << check;
  }
}

}  // namespace
}  // namespace spccl::ctl
