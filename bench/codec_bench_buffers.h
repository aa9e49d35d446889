// Buffers, repeats and threads of codec-bench.
#pragma once

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace spccl::bench {

// Page-aligned memory whose every page has been touched.
class PageBuffer {
 public:
  explicit PageBuffer(size_t bytes);
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(uint8_t* block) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
};

// Runs a function on `threads` threads at once, again and again, and times it.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Seconds from the common start to the end of the last thread. The calling thread is thread 0.
  double Time(const std::function<void(int thread)>& work);

 private:
  void Loop(int thread);

  int threads_;
  std::barrier<> barrier_;
  const std::function<void(int)>* work_ = nullptr;  // null ends the threads; passed by the barrier
  std::vector<std::thread> others_;
};

// The share of `total`, in multiples of `unit`, of thread `thread` of `threads`.
struct Share {
  uint64_t first;
  uint64_t count;
};
Share ShareOf(uint64_t total, uint64_t unit, int thread, int threads);

}  // namespace spccl::bench
