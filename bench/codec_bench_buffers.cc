#include "bench/codec_bench_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

namespace spccl::bench {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

PageBuffer::PageBuffer(size_t bytes, Pages pages) {
  const size_t whole = (bytes / kHugePage + 1) * kHugePage;
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kHugePage, whole)));
  if (data_ == nullptr) throw std::bad_alloc();
  (void)::madvise(data_.get(), whole, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(data_.get(), 1, whole);
}

uint64_t HugePageBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string field;
  uint64_t kib = 0;
  while (rollup >> field) {
    if (field == "AnonHugePages:" && rollup >> kib) return kib << 10;
  }
  return 0;
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
