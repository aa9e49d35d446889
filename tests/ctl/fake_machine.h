// Folders that stand for a machine's /proc, /sys and so on, empty at first.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "ctl/machine.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {

class FakeMachine {
 public:
  FakeMachine() {
    for (std::string* folder : {&machine.proc, &machine.sys, &machine.etc, &machine.run,
                                &machine.dev, &machine.shm, &machine.tmp}) {
      *folder = root + *folder;
      std::filesystem::create_directories(*folder);
    }
  }
  // Below root, "/proc/7/limits" say; folders on the way are made.
  std::string Put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
    return root + path;
  }
  void Link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::filesystem::create_symlink(target, root + path);
  }
  std::string MakeExecutable(const std::string& path, const std::string& text) const {
    const std::string made = Put(path, text);
    std::filesystem::permissions(made, std::filesystem::perms(0755));
    return made;
  }

 private:
  const spccl::testing::TempFolder temp_;

 public:
  const std::string root = temp_.path();
  Machine machine;
};

}  // namespace spccl::ctl
