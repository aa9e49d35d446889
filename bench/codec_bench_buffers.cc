#include "bench/codec_bench_buffers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace spccl::bench {

namespace {
constexpr size_t kPage = 4096;
}  // namespace

PageBuffer::PageBuffer(size_t bytes) {
  const size_t whole = (bytes + kPage) / kPage * kPage;
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kPage, whole)));
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data_.get(), 1, whole);
}

void PageBuffer::Free::operator()(uint8_t* block) const {
  std::free(block);
}

Team::Team(int threads) : threads_(threads), barrier_(threads) {
  for (int thread = 1; thread < threads_; ++thread) {
    others_.emplace_back([this, thread] { Loop(thread); });
  }
}

Team::~Team() {
  work_ = nullptr;
  barrier_.arrive_and_wait();
  for (std::thread& other : others_) other.join();
}

double Team::Time(const std::function<void(int thread)>& work) {
  work_ = &work;
  barrier_.arrive_and_wait();
  const auto start = std::chrono::steady_clock::now();
  work(0);
  barrier_.arrive_and_wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Team::Loop(int thread) {
  while (true) {
    barrier_.arrive_and_wait();
    if (work_ == nullptr) return;
    (*work_)(thread);
    barrier_.arrive_and_wait();
  }
}

Share ShareOf(uint64_t total, uint64_t unit, int thread, int threads) {
  const uint64_t units = (total + unit - 1) / unit;
  const uint64_t first = std::min(units * thread / threads * unit, total);
  const uint64_t end = std::min(units * (thread + 1) / threads * unit, total);
  return {first, end - first};
}

}  // namespace spccl::bench
