// Threads of another process that stand still, as if what they wait for never came.
#pragma once

#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace spccl::testing {

class FrozenThreads {
 public:
  // Those whose names begin so. Use and destroy on one thread.
  FrozenThreads(pid_t process, std::string_view name) {
    const std::string tasks = "/proc/" + std::to_string(process) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      std::string text;
      std::getline(std::ifstream(task.path() / "comm"), text);
      if (!text.starts_with(name)) continue;
      const pid_t id = std::atoi(task.path().filename().c_str());
      if (::ptrace(PTRACE_SEIZE, id, nullptr, nullptr) != 0) continue;
      threads_.push_back(id);
      int status = 0;
      if (::ptrace(PTRACE_INTERRUPT, id, nullptr, nullptr) == 0) ::waitpid(id, &status, __WALL);
    }
  }
  ~FrozenThreads() {
    for (const pid_t id : threads_) ::ptrace(PTRACE_DETACH, id, nullptr, nullptr);
  }
  FrozenThreads(const FrozenThreads&) = delete;
  FrozenThreads& operator=(const FrozenThreads&) = delete;

  // That the process ends: without this it would not be seen to, as they are ours to bury.
  void AwaitEnd() {
    for (const pid_t id : threads_) {
      int status = 0;
      while (::waitpid(id, &status, __WALL) == id && WIFSTOPPED(status)) {
      }
    }
    threads_.clear();
  }
  // None: there are none, or the system does not permit it.
  size_t count() const { return threads_.size(); }

 private:
  std::vector<pid_t> threads_;
};

}  // namespace spccl::testing
