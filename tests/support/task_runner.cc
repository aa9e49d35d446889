#include "tests/support/task_runner.h"

#include <cstdint>
#include <cstdlib>
#include <thread>

namespace spccl::testing {

runtime::DoneFn ResultBox::Fn() {
  return [this](const runtime::OpResult& result) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    result_ = result;
  };
}

int ResultBox::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::optional<runtime::OpResult> ResultBox::result() const {
  const std::lock_guard lock(mutex_);
  return result_;
}

namespace {

// Never freed: reachable until the process ends.
struct FreeScratch {
  std::mutex mutex;
  std::vector<std::byte*> memory;
};
FreeScratch& Spare() {
  static auto* spare = new FreeScratch;
  return *spare;
}

}  // namespace

ScratchMemory::ScratchMemory() {
  const std::lock_guard lock(Spare().mutex);
  if (Spare().memory.empty()) {
    memory_ = static_cast<std::byte*>(std::aligned_alloc(64, runtime::kScratchBytes));
    return;
  }
  memory_ = Spare().memory.back();
  Spare().memory.pop_back();
}

ScratchMemory::~ScratchMemory() {
  const std::lock_guard lock(Spare().mutex);
  Spare().memory.push_back(memory_);
}

void RunTask(runtime::Task* task, int threads) {
  std::mutex mutex;
  std::condition_variable woken;
  uint64_t wakes = 0;
  task->SetWaker([&] {
    const std::lock_guard lock(mutex);
    ++wakes;
    woken.notify_all();
  });
  const auto work = [&] {
    ScratchMemory scratch;
    for (;;) {
      uint64_t seen;
      {
        const std::lock_guard lock(mutex);
        seen = wakes;
      }
      const runtime::Progress progress = task->RunOne(scratch.span());
      if (progress == runtime::Progress::kDone) {
        // Others may sleep for want of work that will never come.
        const std::lock_guard lock(mutex);
        ++wakes;
        woken.notify_all();
        return;
      }
      if (progress == runtime::Progress::kIdle) {
        std::unique_lock lock(mutex);
        woken.wait(lock, [&] { return wakes != seen; });
      }
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
}

}  // namespace spccl::testing
