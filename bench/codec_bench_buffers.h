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

// What a buffer lies on: kHuge asks for huge pages as spcclMemAlloc does, kSmall for none.
enum class Pages : uint8_t { kHuge, kSmall };

// Aligned memory whose every page has been touched.
class PageBuffer {
 public:
  PageBuffer(size_t bytes, Pages pages);
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(uint8_t* block) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
};

// How much of this process's memory lies on huge pages; 0 where the system does not tell.
uint64_t HugePageBytes();

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
