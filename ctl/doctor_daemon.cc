// Checks of the daemon's sockets, of who listens there, and of what the daemon says of itself.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/version.h"
#include "ctl/doctor.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

// Whether what this user owns, or serves, may be trusted as the daemon's.
bool IsTrusted(uid_t uid, std::optional<uid_t> other) {
  return uid == 0 || uid == ::geteuid() || uid == other;
}

// A daemon of root or of a system's user is for all users; a user's own may well be private.
bool IsForAll(uid_t daemon) {
  constexpr uid_t kFirstOrdinary = 1000;
  return daemon < kFirstOrdinary;
}

// What to do where the caller may not even look.
std::string ClosedTo(const std::string& path) {
  return absl::StrCat("`namei -l ", path,
                      "` shows which folder on the way is closed to this user: chmod o+x it");
}

// Whether others get what `others` stands for, or those of a group that was chosen for it.
bool IsOpen(const PathFacts& facts, mode_t group, mode_t others) {
  return (facts.mode & others) != 0 || ((facts.mode & group) != 0 && facts.gid != 0);
}

std::string OwnerText(const PathFacts& facts) {
  return absl::StrCat("owner uid ", UserText(facts.uid), ", mode ", ModeText(facts.mode));
}

}  // namespace

Check CheckRuntimeDir(const std::string& runtime_dir, const PathFacts& facts,
                      std::optional<uid_t> daemon) {
  Check check{.name = "runtime folder",
              .verdict = Verdict::kFailed,
              .found = absl::StrCat(runtime_dir, ", ", OwnerText(facts)),
              .why =
                  "clients and this tool find the daemon's sockets there, and nobody else may "
                  "put sockets in their place",
              .remedy = absl::StrCat("start spccld, or name its folder by --runtime-dir or "
                                     "SPCCL_RUNTIME_DIR; now: ",
                                     runtime_dir)};
  if (facts.error != 0) {
    check.found = absl::StrCat(runtime_dir, ": ", std::strerror(facts.error));
    if (facts.error == EACCES) check.remedy = ClosedTo(runtime_dir);
  } else if (!S_ISDIR(facts.mode)) {
    check.found += ", no folder";
  } else if ((facts.mode & S_IWOTH) != 0) {
    check.found += ", all may write there";
    check.remedy =
        absl::StrCat("chmod ", (facts.mode & S_IWGRP) != 0 ? "go" : "o", "-w ", runtime_dir);
  } else if (!IsTrusted(facts.uid, daemon)) {
    check.found += ", which is neither root's nor the daemon's";
    check.remedy = absl::StrCat("find out who made it; chown it to the daemon's user");
  } else if (!facts.may_enter) {
    check.found += ", we may not enter";
    check.remedy = absl::StrCat("chmod o+x ", runtime_dir);
  } else if ((facts.mode & S_IWGRP) != 0) {
    check.verdict = Verdict::kWarning;
    check.found += ", its group may write there";
    check.remedy = absl::StrCat("chmod g-w ", runtime_dir, ": Slurm's prolog drains the node else");
  } else if (IsForAll(daemon.value_or(facts.uid)) && !IsOpen(facts, S_IXGRP, S_IXOTH)) {
    check.verdict = Verdict::kWarning;
    check.found += ", no other user may enter: their jobs find no daemon";
    check.remedy = absl::StrCat("chmod go+rx ", runtime_dir);
  } else {
    check.verdict = Verdict::kOk;
    check.remedy.clear();
  }
  return check;
}

Check CheckSocket(const std::string& path, const PathFacts& facts, const PathFacts& folder,
                  const absl::StatusOr<Listener>& listener) {
  const std::string name = path.substr(path.rfind('/') + 1);
  Check check{.name = name,
              .verdict = Verdict::kFailed,
              .found = absl::StrCat(path, ", ", OwnerText(facts)),
              .why = name == "control.sock" ? "this tool speaks to the daemon through it"
                                            : "libspccl opens its sessions through it",
              .remedy = "start spccld"};
  if (facts.error != 0) {
    check.found = absl::StrCat(path, ": ", std::strerror(facts.error));
    if (facts.error == EACCES) check.remedy = ClosedTo(path);
  } else if (!S_ISSOCK(facts.mode)) {
    check.found = absl::StrCat(path, " is no socket");
    check.remedy = absl::StrCat("remove ", path, " and start spccld again");
  } else if (!facts.may_write) {
    check.found += ": we may not connect";
    check.remedy = absl::StrCat("chmod 0666 ", path, ": the daemon decides by uid");
  } else if (!listener.ok()) {
    absl::StrAppend(&check.found, ", and nobody listens: ", listener.status().message());
    check.remedy = "the daemon has ended, or is stuck with its queue full: read its log, start it";
  } else if (!IsTrusted(listener->uid, folder.uid)) {
    absl::StrAppend(&check.found, ", but uid ", UserText(listener->uid), " listens (pid ",
                    listener->pid, "), and the folder is uid ", UserText(folder.uid), "'s");
    check.remedy = "find out what that process is; end it, and start spccld";
  } else if (IsForAll(listener->uid) && !IsOpen(facts, S_IWGRP, S_IWOTH)) {
    check.verdict = Verdict::kWarning;
    check.found += ", no other user may connect: their jobs find no daemon";
    check.remedy = absl::StrCat("chmod 0666 ", path, ": the daemon decides by uid");
  } else {
    check.verdict = Verdict::kOk;
    check.found = absl::StrCat(
        OwnerText(facts), "; uid ", UserText(listener->uid), " listens, ",
        listener->pid == 0 ? "in another process namespace" : absl::StrCat("pid ", listener->pid));
    check.remedy.clear();
  }
  return check;
}

Check CheckDaemon(const absl::StatusOr<v1::GetStatusResponse>& answer) {
  Check check{.name = "daemon",
              .verdict = Verdict::kFailed,
              .found = "",
              .why = "without it no collective runs",
              .remedy = "start spccld, and read its log"};
  if (!answer.ok()) {
    check.found = std::string(answer.status().message());
    if (absl::IsPermissionDenied(answer.status())) {
      check.remedy = "it may well run: mend the folder or the socket, as said above";
    } else if (absl::IsDeadlineExceeded(answer.status())) {
      check.remedy = "it is there, but stopped or stuck: read its log; end and start it";
    }
    return check;
  }
  const v1::Status& status = answer->status();
  if (!status.healthy()) {
    check.found = absl::StrCat("answers, but is not healthy: ", Printable(status.health_detail()));
    check.remedy =
        "`spcclctl comms --ranks` and `spcclctl explain` say what hangs; abort that, or restart it";
    return check;
  }
  check.verdict = status.draining() ? Verdict::kWarning : Verdict::kOk;
  check.found =
      absl::StrCat("healthy, pid ", status.pid(), ", up ", HumanSeconds(status.uptime_seconds()),
                   status.draining() ? ", draining: it takes no new sessions" : "");
  check.remedy = status.draining() ? "spcclctl drain --undo" : "";
  return check;
}

Check CheckVersion(const v1::Status& status) {
  const bool same = status.version() == kVersion;
  return {.name = "versions",
          .verdict = same ? Verdict::kOk : Verdict::kWarning,
          .found = absl::StrCat("spcclctl ", kVersion, ", spccld ", Printable(status.version())),
          .why = "a daemon older than its tools lacks what they ask for",
          .remedy = same ? "" : "restart spccld after an upgrade; install both from one package"};
}

Check CheckClientLibrary(const LibraryFacts& library, bool reached, bool draining) {
  const int code = library.version_code;
  Check check{.name = "client library",
              .verdict = Verdict::kSkipped,
              .found = code == 0 ? "libspccl"
                                 : absl::StrCat("libspccl ", code / 10000, ".", code / 100 % 100,
                                                ".", code % 100),
              .why =
                  "programs reach the daemon through it: the versions of session and shared memory "
                  "must fit, and its session must be taken",
              .remedy = ""};
  if (!library.found) {
    check.found = absl::StrCat("no libspccl.so.", kVersionMajor, " among this machine's libraries");
  } else if (library.reached) {
    check.verdict = Verdict::kOk;
    check.found += " opens a session";
  } else if (!reached) {
    check.found += "; no daemon to try it with";
  } else if (draining) {
    check.found += "; the daemon drains, and takes no session";
  } else {
    check.verdict = Verdict::kFailed;
    absl::StrAppend(&check.found, " gets no session: ", Printable(library.error));
    check.remedy = "install library and daemon of one release, and restart spccld";
  }
  return check;
}

Check CheckCodecTarget(const std::string& here, const std::optional<std::string>& daemon) {
  const bool same = !daemon.has_value() || *daemon == here;
  return {
      .name = "codec instructions",
      .verdict = same ? Verdict::kOk : Verdict::kWarning,
      .found = same ? here : absl::StrCat(here, " here, ", Printable(*daemon), " in the daemon"),
      .why = "they decide how fast frames are made and read",
      .remedy = same ? "" : "restart spccld: it was started on, or moved from, another processor"};
}

Check CheckConfig(const absl::StatusOr<DaemonConfig>& config, const absl::Status& judged) {
  Check check{.name = "configuration",
              .verdict = Verdict::kOk,
              .found = "",
              .why = "a daemon whose file cannot be read does not start, and does not reload",
              .remedy = ""};
  const absl::Status wrong = config.ok() ? judged : config.status();
  const bool refused = !config.ok() || absl::IsInvalidArgument(judged);
  if (!refused) {
    check.found = config->path.empty()
                      ? "no file: defaults and flags"
                      : absl::StrCat(config->path, ", ", Counted(config->fields.size(), "field"));
    if (!judged.ok()) {
      absl::StrAppend(&check.found, "; only its syntax was checked, spccld cannot be asked: ",
                      Printable(std::string(judged.message())));
    }
    return check;
  }
  check.found = Printable(std::string(wrong.message()));
  const bool denied = absl::IsPermissionDenied(wrong);
  check.verdict = denied ? Verdict::kSkipped : Verdict::kFailed;
  if (!denied) check.remedy = "`spccld --config FILE --print-config` names what is wrong with it";
  return check;
}

}  // namespace spccl::ctl
