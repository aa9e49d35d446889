// How far a sweep is, on standard error: a bar where that is a terminal, else a line for each step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace spccl::tune {

class ProgressBar {
 public:
  ProgressBar(std::string title, size_t steps);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Skip();  // a step that was done before
  void Begin(const std::string& step);
  void End();
  void Say(const std::string& line);  // beside the bar

 private:
  void Draw() const;

  const std::string title_;
  const size_t steps_;
  const bool terminal_;
  size_t done_ = 0, skipped_ = 0;
  int64_t began_ns_;
  std::string step_;
};

}  // namespace spccl::tune
