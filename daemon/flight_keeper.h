// The thread of the flight recorder: does what must not hold up the core thread, which is disks and
// /proc.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace spccl::daemon {

// Thread-safe.
class FlightKeeper {
 public:
  // So many jobs may wait; one more is dropped.
  static constexpr size_t kMostWaiting = 64;

  FlightKeeper() : thread_([this] { Run(); }) {}
  // Does what has been taken, then ends.
  ~FlightKeeper();
  FlightKeeper(const FlightKeeper&) = delete;
  FlightKeeper& operator=(const FlightKeeper&) = delete;

  // False: too much waits already, and the job is not done. Never blocks.
  bool Post(std::function<void()> job);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace spccl::daemon
