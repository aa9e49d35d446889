// What the tests of the NCCL transport have for a GPU: an issuing thread, a stream that is a
// thread, and memory of its own kind, whose frames are counted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "collective/transport/nccl/environment.h"

namespace spccl::transport::nccl {

// Runs what it is given, in order.
class Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  ~Worker() { Finish(); }

  void Post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  // What was posted before has run.
  void Flush() {
    std::promise<void> done;
    Post([&] { done.set_value(); });
    done.get_future().wait();
  }
  // What was posted runs first.
  void Finish() {
    {
      const std::lock_guard lock(mutex_);
      finishing_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return finishing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool finishing_ = false;
  std::thread thread_;  // last: it uses the others
};

class TestGpu final : public Issuer, public FrameSource, public FrameHome {
 public:
  explicit TestGpu(int number) : number_(number) {}
  ~TestGpu() override {
    stream_.Finish();
    issuing_.Finish();
  }

  // For FakeNccl::Options.
  static void Enqueue(cuda::Stream stream, void (*function)(void*), void* argument) {
    reinterpret_cast<Worker*>(stream)->Post([=] { function(argument); });
  }

  void Post(std::function<void()> work) override { issuing_.Post(std::move(work)); }
  absl::Status Open() override { return absl::OkStatus(); }
  cuda::Stream stream() override { return reinterpret_cast<cuda::Stream>(&stream_); }
  void WhenDone(std::function<void(absl::Status)> done) override {
    stream_.Post([this, done = std::move(done)]() mutable {
      issuing_.Post([done = std::move(done)] { done(absl::OkStatus()); });
    });
  }

  absl::StatusOr<Frame> Take(size_t bytes) override {
    {
      const std::lock_guard lock(mutex_);
      if (full_) {
        refused_ = true;
        changed_.notify_all();
        return absl::ResourceExhaustedError("the GPU's memory is full");
      }
      ++out_;
    }
    const size_t capacity = bytes + 1;
    return Frame(new FrameBlock{.gpu = number_,
                                .home = this,
                                .data = new std::byte[capacity],
                                .capacity_bytes = capacity,
                                .header = std::calloc(1, 48)});
  }
  void Give(FrameBlock* block) override {
    delete[] block->data;
    std::free(block->header);
    delete block;
    const std::lock_guard lock(mutex_);
    --out_;
  }
  // What is on the stream, and what that posts, has run.
  void Flush() {
    std::promise<void> done;
    stream_.Post([&] { issuing_.Post([&] { done.set_value(); }); });
    done.get_future().wait();
  }
  size_t frames_out() {
    const std::lock_guard lock(mutex_);
    return out_;
  }
  void SetFull(bool full) {
    const std::lock_guard lock(mutex_);
    full_ = full;
  }
  // Of memory, as it was full.
  bool AwaitRefusal() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds{60}, [this] { return refused_; });
  }

 private:
  const int number_;
  std::mutex mutex_;
  size_t out_ = 0;
  std::condition_variable changed_;
  bool full_ = false, refused_ = false;
  Worker stream_, issuing_;
};

}  // namespace spccl::transport::nccl
