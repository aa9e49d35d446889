// Drives tasks as the daemon's channel threads do.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collective/runtime/task.h"

namespace spccl::testing {

// Takes the result of one task, and counts how often it came.
class ResultBox {
 public:
  runtime::DoneFn Fn();
  int calls() const;
  // The result; empty while there is none.
  std::optional<runtime::OpResult> result() const;

 private:
  mutable std::mutex mutex_;
  int calls_ = 0;
  std::optional<runtime::OpResult> result_;
};

// Runs the task on `threads` threads until every one has been told kDone. An idle thread sleeps
// until the waker calls. Takes the task's waker.
void RunTask(runtime::Task* task, int threads);

// 64-byte aligned memory of one thread, kept for the next one: fresh memory is dear under the
// sanitizers.
class ScratchMemory {
 public:
  ScratchMemory();
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  runtime::Scratch span() { return {memory_, runtime::kScratchBytes}; }

 private:
  std::byte* memory_;
};

}  // namespace spccl::testing
