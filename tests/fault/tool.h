// spcclctl, as a process, asked of a real daemon.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "base/clock.h"
#include "nlohmann/json.hpp"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"  // kPatienceMs

namespace spccl::testing {

struct ToolEnd {
  int code = -1;
  std::string output;
  nlohmann::json json() const { return nlohmann::json::parse(output, nullptr, false); }
};

// Runs the spcclctl that was built beside this test; what it says on both streams.
inline ToolEnd RunTool(const SpawnedDaemon& daemon, const std::string& arguments) {
  const auto self = std::filesystem::canonical("/proc/self/exe");
  const std::string tool = self.parent_path().parent_path() / "bin" / "spcclctl";
  const std::string command =
      "SPCCL_RUNTIME_DIR=" + daemon.runtime_dir() + " " + tool + " " + arguments + " 2>&1";
  ToolEnd end;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return end;
  char block[4096];
  for (size_t got; (got = std::fread(block, 1, sizeof block, pipe)) > 0;) {
    end.output.append(block, got);
  }
  const int status = ::pclose(pipe);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return end;
}

// Asks over and over until the answer is as wanted, or the time is up; the last answer.
inline ToolEnd AskUntil(const SpawnedDaemon& daemon, const std::string& arguments,
                        const std::function<bool(const ToolEnd&)>& wanted) {
  const int64_t deadline_ns = MonotonicNanos() + int64_t{kPatienceMs} * 1'000'000;
  ToolEnd end;
  do {
    end = RunTool(daemon, arguments);
  } while (!wanted(end) && MonotonicNanos() < deadline_ns);
  return end;
}

}  // namespace spccl::testing
