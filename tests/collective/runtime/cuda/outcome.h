// Takes the result of one task that runs itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "collective/runtime/task.h"

namespace spccl::testing {

class Outcome {
 public:
  runtime::DoneFn Fn() {
    return [this](const runtime::OpResult& result) {
      const std::lock_guard lock(mutex_);
      ++calls_;
      result_ = result;
      came_.notify_all();
    };
  }
  // Empty if it does not come within a minute.
  std::optional<runtime::OpResult> Wait() {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, std::chrono::minutes(1), [this] { return calls_ > 0; });
    return result_;
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  int calls_ = 0;
  std::optional<runtime::OpResult> result_;
};

// What a task that does not end says of itself.
inline std::string Doing(const runtime::TaskLook& look) {
  std::string text = absl::StrCat(look.taken, " of ", look.total, " lanes, ", look.progress);
  for (const runtime::TaskLook::Line& line : look.lines) {
    absl::StrAppend(&text, "; rank ", line.rank, " ", std::string(line.step), " does ",
                    static_cast<int>(line.doing), " with ", line.peer, " x ", line.count);
  }
  return text;
}

}  // namespace spccl::testing
