// Where kernels run, and how launches are enqueued.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/fake_device_codec.h"
#if !defined(__SANITIZE_THREAD__)
#include <condition_variable>
#include <deque>
#endif

namespace spccl::fake_cuda {
namespace {

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
}

simt::FibreMachine NewMachine() {
  return simt::FibreMachine({.seed = Setting("SPCCL_FAKE_DEVICE_SEED", 0)});
}

#if !defined(__SANITIZE_THREAD__)
// A thread for all kernels: a machine's fibres take much memory, and stay on the thread that made
// them. Lives as long as the process.
class KernelThread {
 public:
  static KernelThread& Get() {
    static auto* const thread = new KernelThread;
    return *thread;
  }
  void Run(const std::function<void(simt::FibreMachine&)>& work) {
    Item item = {&work};
    std::unique_lock lock(mutex_);
    queue_.push_back(&item);
    pushed_.notify_one();
    item.ended.wait(lock, [&] { return item.done; });
  }

 private:
  struct Item {
    const std::function<void(simt::FibreMachine&)>* work;
    bool done = false;
    std::condition_variable ended = {};
  };
  KernelThread() { std::thread(&KernelThread::Serve, this).detach(); }
  void Serve() {
    simt::FibreMachine machine = NewMachine();
    std::unique_lock lock(mutex_);
    while (true) {
      pushed_.wait(lock, [&] { return !queue_.empty(); });
      Item& item = *queue_.front();
      queue_.pop_front();
      lock.unlock();
      (*item.work)(machine);
      lock.lock();
      item.done = true;
      item.ended.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<Item*> queue_;  // of callers, which wait
};
#endif

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fake CUDA: misuse: a kernel %s\n", what.c_str());
  std::abort();
}

// A launch that waits for its turn on a stream.
struct Pending {
  Launch launch;
  uint32_t resident;
};

void RunPending(void* data) {
  const auto& [launch, resident] = *static_cast<const Pending*>(data);
  for (const Launch::Range& range : launch.ranges) {
    const auto address = reinterpret_cast<uintptr_t>(range.begin);
    if (range.bytes == 0) continue;
    if (address % range.alignment != 0) Fail("is given memory that is not aligned");
    // Where it goes wrong it has been told, and the context is lost.
    if (spcclFakeReach(address, range.bytes) == nullptr) return;
  }
  if (IsForFibres(launch.dense_bytes)) {
    OnMachine(resident, launch.kernels);
  } else {
    launch.host();
  }
}

void DropPending(void* data) {
  delete static_cast<Pending*>(data);
}

}  // namespace

void KernelLauncher::Check(const absl::Status& status) {
  if (!status.ok()) Fail(std::string("failed: ") + status.ToString());
}

void OnMachine(uint32_t resident, const std::function<void(KernelLauncher&)>& kernels) {
  const auto run = [&](simt::FibreMachine& machine) {
    KernelLauncher launcher(machine, resident);
    kernels(launcher);
  };
#if defined(__SANITIZE_THREAD__)
  // Each stream has its own: fibres that two shared would know of each other's work, and races
  // between streams would go unseen.
  static thread_local simt::FibreMachine machine = NewMachine();
  run(machine);
#else
  KernelThread::Get().Run(run);
#endif
}

bool IsForFibres(uint64_t bytes) {
  static const uint64_t most = Setting("SPCCL_FAKE_DEVICE_FIBRE_BYTES", 32 << 10);
  return most == 0 || bytes <= most;
}

int Enqueue(const device::Queue& queue, Launch launch) {
  if (queue.resident_blocks != kResidentBlocks) {
    Fail("is launched with resident_blocks that are not the device's");
  }
  auto* const pending = new Pending{std::move(launch), queue.resident_blocks};
  return spcclFakeLaunch(static_cast<cuda::Stream>(queue.stream), RunPending, pending, DropPending);
}

}  // namespace spccl::fake_cuda
