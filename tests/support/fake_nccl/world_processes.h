// Ranks of worlds of the fake NCCL in processes of a test's, each with a fake CUDA.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "collective/transport/nccl/library.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/fake_cuda/process_pair.h"
#include "tests/support/fake_nccl/fake_nccl.h"
#include "tests/support/multi_process.h"

namespace spccl::transport::nccl {

using spccl::testing::kTimeoutMs;
using spccl::testing::MultiProcess;

inline FakeNccl& Fake() {
  void* const handle = ::dlopen(SPCCL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  EXPECT_IN_PROCESS(handle != nullptr);
  return *reinterpret_cast<FakeNccl* (*)()>(::dlsym(handle, "fake_nccl"))();
}

// One process says what others are to know; made before the fork.
class Pipe {
 public:
  Pipe() { SPCCL_CHECK(::pipe(ends_) == 0); }
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) ::close(end);
    }
  }
  void Give(const UniqueId& id, size_t times) const {
    for (size_t i = 0; i < times; ++i) {
      EXPECT_IN_PROCESS(::write(ends_[1], &id, sizeof id) == sizeof id);
    }
  }
  UniqueId Take() const {
    UniqueId id;
    EXPECT_IN_PROCESS(::read(ends_[0], &id, sizeof id) == sizeof id);
    return id;
  }
  // Until all others have ended, of whom each has it, too.
  void AwaitOthersEnd() {
    ::close(std::exchange(ends_[1], -1));
    char none;
    EXPECT_IN_PROCESS(::read(ends_[0], &none, 1) == 0);
  }

 private:
  int ends_[2];
};

// A rank, on a GPU of its process: for one thread.
class Rank {
 public:
  Rank(int rank, int ranks, const UniqueId& id) : rank_(rank), ranks_(ranks) {
    EXPECT_IN_PROCESS(driver_->DevicePrimaryCtxRetain(&context_, rank % 2) == cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->CtxPushCurrent(context_) == cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->StreamCreateWithPriority(&stream_, cuda::kStreamNonBlocking, 0) ==
                      cuda::kSuccess);
    Config config;
    config.blocking = 0;
    EXPECT_IN_PROCESS(nccl_->CommInitRankConfig(&comm_, ranks, id, rank, &config) == kInProgress);
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Until nothing is under way, or it fails; what came of it.
  Result Await() const { return AskWhile({kInProgress}); }
  // Until it fails, for whatever others do.
  Result AwaitFailure() const { return AskWhile({kInProgress, kSuccess}); }
  cuda::DevicePtr Take(size_t bytes) const {
    cuda::DevicePtr memory = 0;
    EXPECT_IN_PROCESS(driver_->MemAlloc(&memory, std::max<size_t>(bytes, 1)) == cuda::kSuccess);
    return memory;
  }
  void Write(cuda::DevicePtr to, const std::string& bytes) const {
    EXPECT_IN_PROCESS(driver_->MemcpyAsync(to, reinterpret_cast<cuda::DevicePtr>(bytes.data()),
                                           bytes.size(), stream_) == cuda::kSuccess);
  }
  std::string Read(cuda::DevicePtr from, size_t bytes) const {
    std::string read(bytes, '\0');
    EXPECT_IN_PROCESS(driver_->MemcpyAsync(reinterpret_cast<cuda::DevicePtr>(read.data()), from,
                                           bytes, stream_) == cuda::kSuccess);
    Synchronize();
    return read;
  }
  void Synchronize() const {
    EXPECT_IN_PROCESS(driver_->StreamSynchronize(stream_) == cuda::kSuccess);
  }
  void Send(cuda::DevicePtr data, size_t bytes, int to) const {
    EXPECT_IN_PROCESS(
        nccl_->Send(reinterpret_cast<void*>(data), bytes, kUint8, to, comm_, stream_) == kSuccess);
  }
  void Receive(cuda::DevicePtr data, size_t bytes, int from) const {
    EXPECT_IN_PROCESS(nccl_->Recv(reinterpret_cast<void*>(data), bytes, kUint8, from, comm_,
                                  stream_) == kSuccess);
  }
  Result Group(const std::function<void()>& calls) const {
    EXPECT_IN_PROCESS(nccl_->GroupStart() == kSuccess);
    calls();
    (void)nccl_->GroupEnd();
    return Await();
  }
  // Until all are there; those that are through may be up to something already.
  void Meet() const {
    EXPECT_IN_PROCESS(Await() == kSuccess);
    const cuda::DevicePtr data = Take(2);
    (void)Group([&] {
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        Send(data, 1, peer);
        Receive(data + 1, 1, peer);
      }
    });
    Synchronize();
  }
  // By force; what is on the stream ends by that.
  void Abort() const {
    EXPECT_IN_PROCESS(nccl_->CommAbort(comm_) == kSuccess);
    Synchronize();
  }
  // That a group does not end, and what else the GPU does goes on.
  void ExpectWaiting() const {
    EXPECT_IN_PROCESS(driver_->StreamQuery(stream_) == cuda::kErrorNotReady);
    const cuda::DevicePtr data = Take(1);
    cuda::Stream other = nullptr;
    EXPECT_IN_PROCESS(driver_->StreamCreateWithPriority(&other, cuda::kStreamNonBlocking, 0) ==
                      cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->MemsetD8Async(data, 1, 1, other) == cuda::kSuccess);
    EXPECT_IN_PROCESS(driver_->StreamSynchronize(other) == cuda::kSuccess);
  }
  const Library& nccl() const { return *nccl_; }
  Comm comm() const { return comm_; }
  void Finish() const {
    EXPECT_IN_PROCESS(nccl_->CommFinalize(comm_) == kInProgress);
    EXPECT_IN_PROCESS(Await() == kSuccess);
    EXPECT_IN_PROCESS(nccl_->CommDestroy(comm_) == kSuccess);
  }

 private:
  Result AskWhile(std::initializer_list<Result> going_on) const {
    const int64_t until_ns = MonotonicNanos() + kTimeoutMs * 1'000'000;
    Result result = *going_on.begin();
    while (std::count(going_on.begin(), going_on.end(), result) > 0 &&
           MonotonicNanos() < until_ns) {
      EXPECT_IN_PROCESS(nccl_->CommGetAsyncError(comm_, &result) == kSuccess);
      std::this_thread::yield();
    }
    return result;
  }

  const int rank_, ranks_;
  const std::shared_ptr<const cuda::Driver> driver_ = spccl::testing::LoadFakeDriver();
  const std::shared_ptr<const Library> nccl_ = *Library::Load(SPCCL_FAKE_NCCL);
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  Comm comm_ = nullptr;
};

inline UniqueId MakeId() {
  UniqueId id;
  EXPECT_IN_PROCESS((*Library::Load(SPCCL_FAKE_NCCL))->GetUniqueId(&id) == kSuccess);
  return id;
}

// The processes of a world: which ranks each has.
using Layout = std::vector<std::vector<int>>;

inline int RanksOf(const Layout& layout) {
  size_t ranks = 0;
  for (const auto& of_process : layout) ranks += of_process.size();
  return static_cast<int>(ranks);
}

// Runs `body` for each rank of each world, on a thread of its process. A world's id is made by the
// process of its number, which is there as long as others are if it has no rank.
inline MultiProcess Start(
    const Layout& layout,
    std::function<void(const Rank& rank, const MultiProcess::Report& report)> body,
    size_t worlds = 1) {
  auto ids = std::make_shared<std::vector<Pipe>>(worlds);
  auto alive = std::make_shared<Pipe>();
  return MultiProcess(static_cast<int>(layout.size()),
                      [layout, ids, alive, body = std::move(body)](
                          int process, const MultiProcess::Report& report) {
                        if (process % 2 == 1) ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", "0", 1);
                        if (process == 0) ::setenv("SPCCL_FAKE_CUDA_DELAY_US", "200", 1);
                        const auto own = static_cast<size_t>(process);
                        if (own < ids->size()) (*ids)[own].Give(MakeId(), layout.size());
                        std::vector<std::thread> threads;
                        for (const Pipe& pipe : *ids) {
                          const UniqueId id = pipe.Take();
                          for (const int number : layout[own]) {
                            threads.emplace_back([&, id, number] {
                              const Rank rank(number, RanksOf(layout), id);
                              rank.Meet();
                              body(rank, report);
                            });
                          }
                        }
                        for (std::thread& thread : threads) thread.join();
                        if (threads.empty()) alive->AwaitOthersEnd();
                        return 0;
                      });
}

}  // namespace spccl::transport::nccl
