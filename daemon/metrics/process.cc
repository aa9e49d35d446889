// What /proc says of this process.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "daemon/metrics/sample.h"

namespace spccl::daemon::metrics {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

std::optional<uint64_t> CountDescriptors() {
  const std::unique_ptr<DIR, CloseDir> dir(::opendir("/proc/self/fd"));
  if (dir == nullptr) return std::nullopt;
  uint64_t count = 0;
  while (const dirent* entry = ::readdir(dir.get())) count += entry->d_name[0] != '.';
  return count - 1;  // the folder itself was open
}

// The fields of /proc/self/stat after the command's name, which may hold anything: the first is
// number 3 in proc(5).
std::vector<std::string> ReadStat() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  return absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipWhitespace());
}

std::optional<uint64_t> FieldOf(const std::vector<std::string>& stat, size_t number) {
  uint64_t value;
  if (number - 3 >= stat.size() || !absl::SimpleAtoi(stat[number - 3], &value)) return std::nullopt;
  return value;
}

// When the process started, from its start in ticks since the machine's.
std::optional<double> StartTime(std::optional<uint64_t> ticks) {
  timespec now, since_boot;
  if (!ticks || ::clock_gettime(CLOCK_REALTIME, &now) != 0 ||
      ::clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) {
    return std::nullopt;
  }
  const auto boot = static_cast<double>(now.tv_sec - since_boot.tv_sec) +
                    static_cast<double>(now.tv_nsec - since_boot.tv_nsec) * 1e-9;
  return boot + static_cast<double>(*ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessSample ReadProcess() {
  ProcessSample sample;
  const std::vector<std::string> stat = ReadStat();
  const auto ticks_a_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const std::optional<uint64_t> user = FieldOf(stat, 14), system = FieldOf(stat, 15);
  if (user && system) sample.cpu_seconds = static_cast<double>(*user + *system) / ticks_a_second;
  sample.threads = FieldOf(stat, 20);
  sample.start_unix_seconds = StartTime(FieldOf(stat, 22));
  sample.virtual_bytes = FieldOf(stat, 23);
  if (const auto pages = FieldOf(stat, 24)) {
    sample.resident_bytes = *pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  sample.open_fds = CountDescriptors();
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) sample.max_fds = limit.rlim_cur;
  return sample;
}

}  // namespace spccl::daemon::metrics
