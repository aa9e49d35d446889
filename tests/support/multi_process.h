// Ranks as real processes: fork, run a function in each, wait with a deadline, kill.
//
// The test program must be single-threaded when it forks: start daemons as processes
// (SpawnedDaemon), not in this one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace spccl::testing {

// What one rank's process left behind.
struct ProcessEnd {
  bool exited = false;  // by itself, with exit_code
  int exit_code = -1;
  int signal = 0;          // that ended it, 0 if none
  bool timed_out = false;  // it was killed by Wait()
  std::string output;      // all that the function reported through its Report
};

class MultiProcess {
 public:
  // The only channel from a rank's process to the test: each call sends text at once, so that what
  // was reported before a crash is kept.
  using Report = std::function<void(const std::string&)>;
  // Runs in the child; its return value becomes the exit code.
  using Body = std::function<int(int rank, const Report& report)>;

  // Forks `ranks` children. Kills and reaps what is left in the destructor.
  MultiProcess(int ranks, Body body);
  ~MultiProcess();
  MultiProcess(const MultiProcess&) = delete;
  MultiProcess& operator=(const MultiProcess&) = delete;

  int ranks() const { return static_cast<int>(children_.size()); }
  pid_t pid(int rank) const { return children_[rank].pid; }
  void Kill(int rank, int signal);

  // Blocks until the rank's reports contain `text`, or the process has ended, or the deadline has
  // passed; true only in the first case.
  bool AwaitReport(int rank, const std::string& text, int64_t timeout_ms);

  // Waits for every child; those still running at the deadline are killed and marked timed_out.
  std::vector<ProcessEnd> Wait(int64_t timeout_ms);

 private:
  struct Child {
    pid_t pid = -1;
    int report_fd = -1;  // read end; -1 once the writer has closed
    ProcessEnd end;
    bool reaped = false;
  };
  // Reads what is there for up to `timeout_ms`; false when nothing more can come or time is up.
  bool ReadSome(int64_t timeout_ms);
  void Reap(Child& child);

  std::vector<Child> children_;
};

// True if every end is an exit with code 0; otherwise prints each rank's end to stderr.
bool AllSucceeded(const std::vector<ProcessEnd>& ends);

}  // namespace spccl::testing
