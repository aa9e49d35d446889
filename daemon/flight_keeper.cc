#include "daemon/flight_keeper.h"

#include <utility>

namespace spccl::daemon {

FlightKeeper::~FlightKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool FlightKeeper::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= kMostWaiting) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void FlightKeeper::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace spccl::daemon
