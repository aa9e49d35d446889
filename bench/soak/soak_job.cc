// soak-job: what a host has of one job of tools/soak.sh. Forks a process for each of --processes
// and tells how each ended; all lines of all of them are objects, in JSON, on standard output.
//
// Exit codes: 0 all were waited for, whatever they did; 1 wrong use; 2 no process could be made.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "bench/perf/pattern.h"
#include "bench/soak/process.h"

namespace spccl::bench {
namespace {

// "0,2/3": one process with the ranks 0 and 2, one with rank 3. Throws CLI::ValidationError.
std::vector<std::vector<uint32_t>> ParseProcesses(const std::string& text, uint32_t ranks) {
  std::vector<std::vector<uint32_t>> processes;
  for (const std::string& process : std::vector<std::string>(absl::StrSplit(text, '/'))) {
    processes.emplace_back();
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(process, ','))) {
      uint32_t rank = 0;
      if (!absl::SimpleAtoi(word, &rank) || rank >= ranks) {
        throw CLI::ValidationError("--processes", "\"" + word + "\" is no rank of the job");
      }
      processes.back().push_back(rank);
    }
  }
  return processes;
}

[[noreturn]] void RunProcess(const JobOptions& options, const std::vector<uint32_t>& own) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 2;
  try {
    code = SoakProcess(options, own).Run();
  } catch (const std::exception& error) {  // the standard library's: no memory, no file
    std::fprintf(stderr, "soak-job: %s\n", error.what());
  }
  std::exit(code);  // as any program ends: leaks are looked for, where the build does that
}

int Main(int argc, char** argv) {
  JobOptions options;
  std::string text;
  std::vector<std::vector<uint32_t>> processes;
  CLI::App app("One host's processes of a job of tools/soak.sh, which starts it.", "soak-job");
  app.add_option("--ranks", options.ranks, "of the job")->check(CLI::Range(1u, kMaxRanks));
  app.add_option("--processes", text, "this host's: ranks, as in 0,2/3")->required();
  app.add_option("--seed", options.seed, "of the job");
  app.add_option("--steps", options.steps, "0: until something fails")->capture_default_str();
  app.add_option("--max-bytes", options.max_bytes, "of a buffer")->capture_default_str();
  app.add_option("--meet", options.meet, "where rank 0 puts the unique id")->required();
  app.add_option("--may-fail", options.may_fail, "is there once the job may fail")->required();
  try {
    app.parse(argc, argv);
    processes = ParseProcesses(text, options.ranks);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  ::setsid();  // the daemon tells jobs apart by that; fails where it is one already
  std::map<pid_t, std::vector<uint32_t>> running;
  for (const std::vector<uint32_t>& own : processes) {
    const pid_t pid = ::fork();
    if (pid == 0) RunProcess(options, own);
    if (pid < 0) {
      std::perror("soak-job: fork");
      return 2;  // those that were made end with this process
    }
    running[pid] = own;
  }
  while (!running.empty()) {
    int how = 0;
    const pid_t pid = ::waitpid(-1, &how, 0);
    if (pid < 0 && errno == EINTR) continue;
    const auto ended = running.find(pid);
    if (ended == running.end()) continue;
    Say({{"at", "ended"},
         {"ranks", ended->second},
         {"code", WIFEXITED(how) ? WEXITSTATUS(how) : -1},
         {"signal", WIFSIGNALED(how) ? WTERMSIG(how) : 0}});
    running.erase(ended);
  }
  return 0;
}

}  // namespace
}  // namespace spccl::bench

int main(int argc, char** argv) {
  return spccl::bench::Main(argc, argv);
}
