#include "daemon/gpu_closer.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

namespace spccl::daemon {
namespace {

// How soon what has to wait for ranks is looked at again: while an operation runs, of which the
// ranks were waited for, they are not.
constexpr std::chrono::milliseconds kLookAgain{1};

}  // namespace

// What is to be closed of one GPU, and the thread that does it.
class GpuCloser::Queue {
 public:
  explicit Queue(const runtime::Gpu& gpu) : gpu_(gpu), thread_([this] { Run(); }) {
    ::pthread_setname_np(thread_.native_handle(), "spccl-closer");
  }
  ~Queue() {
    Stop();
    thread_.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Add(std::function<void()> close) {
    const std::lock_guard lock(mutex_);
    deferred_.push_back(std::move(close));
    changed_.notify_one();
  }
  // What is left waits for no rank any more.
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }

 private:
  // A GPU that has failed waits for nobody.
  bool MayClose() const { return stopping_ || gpu_.may_free() || !gpu_.status().ok(); }
  void Run();

  const runtime::Gpu& gpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> deferred_;
  bool stopping_ = false;
  std::thread thread_;
};

void GpuCloser::Queue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (deferred_.empty()) {
      if (stopping_) return;
      changed_.wait(lock);
    } else if (MayClose()) {
      std::function<void()> close = std::move(deferred_.front());
      deferred_.pop_front();
      lock.unlock();
      close();
      close = nullptr;
      lock.lock();
    } else {
      changed_.wait_for(lock, kLookAgain);
    }
  }
}

GpuCloser::GpuCloser(runtime::Gpus& gpus) {
  for (size_t i = 0; i < gpus.count(); ++i) queues_.push_back(std::make_unique<Queue>(gpus.at(i)));
}

GpuCloser::~GpuCloser() {
  // All of them, before one that waits for its GPU is waited for.
  for (const auto& queue : queues_) queue->Stop();
}

void GpuCloser::Defer(const runtime::Gpu& gpu, std::function<void()> close) {
  queues_[static_cast<size_t>(gpu.index())]->Add(std::move(close));
}

}  // namespace spccl::daemon
