#include "ctl/machine.h"

#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace spccl::ctl {
namespace {

constexpr size_t kMostProcBytes = size_t{1} << 20;

std::string FileOf(const Machine& machine, pid_t pid, const char* name) {
  return absl::StrCat(machine.proc, "/", pid, "/", name);
}

// What follows `key` on its line of the file.
std::optional<std::string> ValueIn(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return std::nullopt;
}

// The strings of a file of /proc that end with a NUL each.
std::optional<std::vector<std::string>> StringsIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMostProcBytes);
  if (!text.ok()) return std::nullopt;
  std::vector<std::string> strings = absl::StrSplit(*text, '\0');
  if (!strings.empty() && strings.back().empty()) strings.pop_back();
  return strings;
}

void AddListeners(const std::string& path, std::vector<TcpListener>* listeners) {
  constexpr char kListens[] = "0A";
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the headings
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, timeout;
    uint32_t uid = 0;
    uint64_t inode = 0;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
        timeout >> inode;
    const size_t colon = local.rfind(':');
    uint32_t port = 0;
    if (!fields || state != kListens || colon == std::string::npos ||
        !absl::SimpleHexAtoi(local.substr(colon + 1), &port)) {
      continue;
    }
    listeners->push_back({.port = static_cast<uint16_t>(port), .uid = uid, .inode = inode});
  }
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes, Part part,
                                     uint64_t* total_bytes, Links links) {
  SPCCL_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path, links));
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, path);
  const auto size = static_cast<uint64_t>(info.st_size);  // 0 in /proc
  if (part == Part::kTail && size > most_bytes &&
      ::lseek(file.get(), static_cast<off_t>(size - most_bytes), SEEK_SET) < 0) {
    return ErrnoStatus(errno, path);
  }
  std::string text(most_bytes, '\0');
  size_t filled = 0;
  while (filled < most_bytes) {
    const ssize_t got = ::read(file.get(), text.data() + filled, most_bytes - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, path);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  // Files of /proc and /sys have no size, or any: what ended was all.
  const uint64_t total =
      text.size() < most_bytes ? text.size() : std::max<uint64_t>(size, most_bytes);
  if (total_bytes != nullptr) *total_bytes = total;
  return text;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error), end;
  for (; !error && at != end; at.increment(error)) names.push_back(at->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

PathFacts FactsOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {.error = errno};
  return {.mode = info.st_mode,
          .uid = info.st_uid,
          .gid = info.st_gid,
          .may_enter = ::access(path.c_str(), X_OK) == 0,
          .may_write = ::access(path.c_str(), W_OK) == 0};
}

std::string ModeText(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

std::string UserText(uid_t uid) {
  std::array<char, 16384> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return absl::StrCat(uid);
  }
  return absl::StrCat(uid, " (", found->pw_name, ")");
}

std::optional<uint64_t> MemlockOf(const Machine& machine, pid_t pid) {
  const auto value = ValueIn(FileOf(machine, pid, "limits"), "Max locked memory");
  if (!value) return std::nullopt;
  std::istringstream fields(*value);
  std::string soft;
  fields >> soft;
  if (soft == "unlimited") return RLIM_INFINITY;
  return std::strtoull(soft.c_str(), nullptr, 10);
}

std::optional<uint64_t> CapabilitiesOf(const Machine& machine, pid_t pid) {
  const auto value = ValueIn(FileOf(machine, pid, "status"), "CapEff:");
  if (!value) return std::nullopt;
  return std::strtoull(value->c_str(), nullptr, 16);
}

std::optional<std::vector<std::string>> ArgumentsOf(const Machine& machine, pid_t pid) {
  return StringsIn(FileOf(machine, pid, "cmdline"));
}

std::optional<std::map<std::string, std::string>> EnvironmentOf(const Machine& machine, pid_t pid) {
  const auto strings = StringsIn(FileOf(machine, pid, "environ"));
  if (!strings) return std::nullopt;
  std::map<std::string, std::string> values;
  for (const std::string& text : *strings) {
    const size_t equals = text.find('=');
    if (equals != std::string::npos) values[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return values;
}

std::optional<bool> HoldsSocket(const Machine& machine, pid_t pid, uint64_t inode) {
  const std::string folder = FileOf(machine, pid, "fd");
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error), end;
  if (error) return std::nullopt;
  const std::string wanted = absl::StrCat("socket:[", inode, "]");
  for (; !error && at != end; at.increment(error)) {
    std::error_code ignored;  // a descriptor that was closed meanwhile
    if (std::filesystem::read_symlink(at->path(), ignored) == wanted) return true;
  }
  return false;
}

std::vector<TcpListener> TcpListenersOf(const Machine& machine, std::optional<pid_t> pid) {
  std::vector<TcpListener> listeners;
  const std::string folder =
      pid ? FileOf(machine, *pid, "net") : absl::StrCat(machine.proc, "/self/net");
  AddListeners(folder + "/tcp", &listeners);
  AddListeners(folder + "/tcp6", &listeners);
  return listeners;
}

}  // namespace spccl::ctl
