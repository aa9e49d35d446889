#include "daemon/scheduler.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/cpu_slice.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

// Hardware threads that the calling thread may use, as the channel threads may then.
uint32_t UsableThreads() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { ::hwloc_topology_destroy(topology); }
};
struct BitmapDeleter {
  void operator()(hwloc_bitmap_t bitmap) const { ::hwloc_bitmap_free(bitmap); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

// Only of what the calling thread may use: by taskset, or systemd's CPUAffinity.
absl::StatusOr<Topology> LoadTopology() {
  hwloc_topology_t raw = nullptr;
  if (::hwloc_topology_init(&raw) != 0) return ErrnoStatus(errno, "hwloc_topology_init");
  Topology topology(raw);
  if (::hwloc_topology_load(raw) != 0) return ErrnoStatus(errno, "hwloc_topology_load");
  const std::unique_ptr<hwloc_bitmap_s, BitmapDeleter> usable(::hwloc_bitmap_alloc());
  if (usable == nullptr) return absl::ResourceExhaustedError("hwloc_bitmap_alloc: no memory");
  if (::hwloc_get_cpubind(raw, usable.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return ErrnoStatus(errno, "hwloc_get_cpubind");
  }
  if (::hwloc_topology_restrict(raw, usable.get(), 0) != 0) {
    return ErrnoStatus(errno, "hwloc_topology_restrict");
  }
  return topology;
}

absl::Status Pin(hwloc_topology_t topology, std::thread& thread, uint32_t index) {
  const int cores = ::hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  if (cores <= 0) return absl::NotFoundError("hwloc sees no cores to pin channel threads to");
  const hwloc_obj_t core =
      ::hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, index % static_cast<uint32_t>(cores));
  if (::hwloc_set_thread_cpubind(topology, thread.native_handle(), core->cpuset, 0) != 0) {
    return ErrnoStatus(errno, absl::StrCat("pinning channel thread ", index));
  }
  return absl::OkStatus();
}

struct AlignedDeleter {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const Options& options) {
  const uint32_t channels =
      std::min(options.channels == 0 ? UsableThreads() : options.channels, kMaxChannelThreads);
  auto scheduler = std::unique_ptr<Scheduler>(new Scheduler(options.thread_clock));
  Topology topology;
  if (options.pin) {
    SPCCL_ASSIGN_OR_RETURN(topology, LoadTopology());
  }
  for (uint32_t i = 0; i < channels; ++i) {
    Channel& channel = *scheduler->channels_.emplace_back(std::make_unique<Channel>());
    if (options.spans > 0) {
      channel.spans = std::make_unique<runtime::SpanRing>(options.spans);
    }
    channel.thread = std::thread([raw = scheduler.get(), &channel] { raw->Run(channel); });
    ::pthread_setname_np(channel.thread.native_handle(), absl::StrCat("spccl-ch", i).c_str());
    if (options.pin) SPCCL_RETURN_IF_ERROR(Pin(topology.get(), channel.thread, i));
  }
  return scheduler;
}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (auto& channel : channels_) {
    if (channel->thread.joinable()) channel->thread.join();
  }
}

void Scheduler::Add(const std::string& job_id, uint64_t comm_id,
                    std::shared_ptr<runtime::Task> task, ChannelShare share,
                    std::shared_ptr<ChannelTime> time) {
  runtime::Task* const raw = task.get();
  {
    std::lock_guard lock(mutex_);
    const auto entry = queue_.Add(job_id, comm_id, std::move(task), share, std::move(time));
    entry->added_ns = MonotonicNanos();
    NoteDue();
    // Under the lock, so that it is set before any thread can run the task.
    raw->SetWaker([this, weak = std::weak_ptr(entry)] { Wake(weak); });
  }
  ready_.notify_all();
}

void Scheduler::SetShare(const std::string& job_id, ChannelShare share) {
  {
    std::lock_guard lock(mutex_);
    queue_.SetShare(job_id, share);
  }
  ready_.notify_all();  // it may be allowed more threads than before
}

void Scheduler::Remove(const runtime::Task* task) {
  FairQueue::EntryRef entry;  // outlives the lock: dropping a task may take time
  std::lock_guard lock(mutex_);
  entry = queue_.Find(task);
  if (entry) queue_.Remove(entry);
}

void Scheduler::Wake(const std::weak_ptr<FairQueue::Entry>& weak_entry) {
  const FairQueue::EntryRef entry = weak_entry.lock();
  if (!entry) return;
  {
    std::lock_guard lock(mutex_);
    ++entry->wakes;
    if (!queue_.Unpark(entry)) return;
    NoteDue();
  }
  ready_.notify_all();
}

void Scheduler::NoteDue() {
  if (due_since_ns_.load(std::memory_order_relaxed) != 0) return;
  due_since_ns_.store(MonotonicNanos(), std::memory_order_relaxed);
}

int64_t Scheduler::DueNanos(int64_t now_ns) const {
  const int64_t since = due_since_ns_.load(std::memory_order_relaxed);
  return since == 0 ? 0 : std::max<int64_t>(0, now_ns - since);
}

int64_t Scheduler::OldestSliceNanos(int64_t now_ns) const {
  int64_t oldest = 0;
  for (const auto& channel : channels_) {
    const int64_t began = channel->slice_began_ns.load(std::memory_order_relaxed);
    if (began != 0) oldest = std::max(oldest, now_ns - began);
  }
  return oldest;
}

void Scheduler::Run(Channel& channel) {
  // Between two tasks' slices, once its own has passed, it lets whoever waits for the core go
  // first: a rank that was told a result, say. On Linux 6.18 a yield forfeits what is left of the
  // thread's own slice, so that is a short one.
  (void)SetCpuSlice(kShortestCpuSliceNs);
  const std::unique_ptr<std::byte[], AlignedDeleter> memory(new (std::align_val_t{64})
                                                                std::byte[runtime::kScratchBytes]);
  const runtime::Scratch scratch(memory.get(), runtime::kScratchBytes);
  runtime::SpanRing* const spans = channel.spans.get();
  runtime::SpanRing::SetOfThisThread(spans);
  // What lies between two slices is charged to the second.
  int64_t charged_until_ns = thread_clock_();
  int64_t yielded_ns = charged_until_ns;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    FairQueue::Turn turn = queue_.Next();
    const FairQueue::EntryRef& entry = turn.entry;
    if (!entry) {
      due_since_ns_.store(0, std::memory_order_relaxed);
      ready_.wait(lock);
      continue;
    }
    const uint64_t wakes = entry->wakes;
    const int64_t now_ns = MonotonicNanos();
    due_since_ns_.store(now_ns, std::memory_order_relaxed);
    const int64_t added_ns = std::exchange(entry->added_ns, 0);
    lock.unlock();
    if (added_ns != 0) waits_.Observe(now_ns - added_ns);
    channel.slice_began_ns.store(now_ns, std::memory_order_relaxed);
    if (spans != nullptr) spans->BeginSlice(now_ns);
    const runtime::Progress progress = entry->task->RunOne(scratch);
    channel.slice_began_ns.store(0, std::memory_order_relaxed);
    const int64_t spent_ns = thread_clock_();
    if (spent_ns - yielded_ns >= kShortestCpuSliceNs) {
      yielded_ns = spent_ns;
      ::sched_yield();
    }
    lock.lock();
    queue_.End(turn, spent_ns - std::exchange(charged_until_ns, spent_ns));
    if (progress == runtime::Progress::kDone) queue_.Remove(entry);
    // A wake in between means that there may be something to run again: look once more.
    if (progress == runtime::Progress::kIdle && entry->wakes == wakes) queue_.Park(entry);
    if (entry.use_count() > 1) continue;
    // The last reference: the task goes without the lock held.
    lock.unlock();
    turn.entry.reset();
    lock.lock();
  }
}

}  // namespace spccl::daemon
