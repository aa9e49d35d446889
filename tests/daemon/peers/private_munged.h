// A munged of the test's own, with a key of its own.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace spccl::daemon::peers {

// An error of a test that finds none of it is better than a test that never ran.
class PrivateMunged {
 public:
  explicit PrivateMunged(char key) {
    char pattern[] = "/tmp/spccl_munge_XXXXXX";
    folder_ = ::mkdtemp(pattern);
    ::chmod(folder_.c_str(), 0711);  // munged wants everybody to reach its socket
    std::ofstream(folder_ + "/key") << std::string(1024, key);
    ::chmod((folder_ + "/key").c_str(), 0600);
    const std::string command = "munged --force --num-threads=2 --socket=" + folder_ +
                                "/socket --key-file=" + folder_ + "/key --log-file=" + folder_ +
                                "/log --pid-file=" + folder_ + "/pid --seed-file=" + folder_ +
                                "/seed >" + folder_ + "/out 2>&1";
    // It answers once the call returns: it goes into the background when it listens.
    EXPECT_EQ(std::system(command.c_str()), 0) << Read("out");
  }
  ~PrivateMunged() {
    const int pid = std::atoi(Read("pid").c_str());
    if (pid > 0) {
      ::kill(pid, SIGTERM);
      for (int i = 0; i < 500 && ::kill(pid, 0) == 0; ++i) ::usleep(10'000);
    }
    std::filesystem::remove_all(folder_);
  }
  std::string socket() const { return folder_ + "/socket"; }

 private:
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string folder_;
};

}  // namespace spccl::daemon::peers
