// Threads that run a part of a task as a scheduler's do, while the rest of it runs itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collective/runtime/task.h"
#include "gtest/gtest.h"
#include "tests/support/task_runner.h"

namespace spccl::testing {

// Until it says that it is done; null: there is no such part.
class ChannelThreads {
 public:
  ChannelThreads(std::shared_ptr<runtime::Task> task, int threads) {
    if (task == nullptr) return;
    const auto state = std::make_shared<State>();
    task->SetWaker([state] { state->Wake(); });
    for (int i = 0; i < threads; ++i) threads_.emplace_back([state, task] { Work(*state, *task); });
  }
  ~ChannelThreads() {
    for (std::thread& thread : threads_) thread.join();
  }
  ChannelThreads(const ChannelThreads&) = delete;
  ChannelThreads& operator=(const ChannelThreads&) = delete;

 private:
  // The waker's, too, which may call when the threads have gone.
  struct State {
    std::mutex mutex;
    std::condition_variable woken;
    uint64_t wakes = 0;

    void Wake() {
      const std::lock_guard lock(mutex);
      ++wakes;
      woken.notify_all();
    }
    uint64_t Seen() {
      const std::lock_guard lock(mutex);
      return wakes;
    }
  };
  static void Work(State& state, runtime::Task& task) {
    ScratchMemory scratch;
    for (;;) {
      const uint64_t seen = state.Seen();
      const runtime::Progress progress = task.RunOne(scratch.span());
      if (progress == runtime::Progress::kDone) return state.Wake();
      if (progress == runtime::Progress::kRan) continue;
      std::unique_lock lock(state.mutex);
      if (!state.woken.wait_for(lock, std::chrono::minutes(1),
                                [&] { return state.wakes != seen; })) {
        ADD_FAILURE() << "nobody wakes a channel thread";
        return;
      }
    }
  }

  std::vector<std::thread> threads_;
};

}  // namespace spccl::testing
