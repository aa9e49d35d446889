#include "collective/runtime/cuda/gpu_device.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace spccl::runtime {
namespace {

constexpr int64_t kWatchNs = 100'000'000;
constexpr int64_t kPollNs = 1'000'000;

constexpr size_t kHeaderBytes = 64;
constexpr size_t kHeadersOfSlab = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDevice>> GpuDevice::Create(
    std::shared_ptr<const cuda::Driver> driver, const device::CodecTable& codec, int ordinal,
    int index, const Gpus::Options& options) {
  std::unique_ptr<GpuDevice> gpu(new GpuDevice(std::move(driver), index, options));
  SPCCL_RETURN_IF_ERROR(gpu->Open(codec, ordinal));
  return gpu;
}

absl::Status GpuDevice::Check(cuda::Result result, std::string_view what) const {
  return driver_->ToStatus(result, what);
}

absl::Status GpuDevice::Open(const device::CodecTable& codec, int ordinal) {
  SPCCL_RETURN_IF_ERROR(Check(driver_->DeviceGet(&device_, ordinal), "cuDeviceGet"));
  SPCCL_RETURN_IF_ERROR(Check(driver_->DeviceGetUuid(&uuid_, device_), "cuDeviceGetUuid"));
  char name[128] = {};
  SPCCL_RETURN_IF_ERROR(
      Check(driver_->DeviceGetName(name, sizeof(name) - 1, device_), "cuDeviceGetName"));
  name_ = name;
  SPCCL_RETURN_IF_ERROR(
      Check(driver_->DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  const cuda::ScopedContext current(*driver_, context_);
  SPCCL_RETURN_IF_ERROR(current.status());
  if (const int error = codec.resident_blocks(ordinal, &resident_blocks_); error != 0) {
    return absl::UnavailableError(
        absl::StrCat("kernels for GPU ", ordinal, " (", name_, "): ", codec.error_text(error)));
  }
  SPCCL_RETURN_IF_ERROR(OpenStreams());
  MakePools();
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

absl::Status GpuDevice::OpenStreams() {
  for (size_t i = 0; i < kWorkStreams; ++i) {
    Lane lane;
    SPCCL_RETURN_IF_ERROR(
        Check(driver_->StreamCreateWithPriority(&lane.stream, cuda::kStreamNonBlocking, 0),
              "cuStreamCreateWithPriority"));
    lanes_.push_back(lane);
  }
  return absl::OkStatus();
}

void GpuDevice::MakePools() {
  const auto may_free = [this] { return this->may_free(); };
  frames_ = std::make_unique<StagingPool>(
      index_, options_.staging_bytes,
      StagingPool::Source{.make = [this](size_t bytes) -> absl::StatusOr<std::byte*> {
                            const cuda::ScopedContext current(*driver_, context_);
                            SPCCL_RETURN_IF_ERROR(current.status());
                            cuda::DevicePtr memory = 0;
                            SPCCL_RETURN_IF_ERROR(
                                Check(driver_->MemAlloc(&memory, bytes), "cuMemAlloc"));
                            // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's name for it
                            return reinterpret_cast<std::byte*>(memory);
                          },
                          .free =
                              [this](std::byte* memory) {
                                const cuda::ScopedContext current(*driver_, context_);
                                (void)driver_->MemFree(reinterpret_cast<cuda::DevicePtr>(memory));
                              },
                          .may_free = may_free,
                          .make_header = [this] { return MakeHeader(); }});
  pinned_ = std::make_unique<StagingPool>(
      -1, options_.staging_bytes,
      StagingPool::Source{.make = [this](size_t bytes) -> absl::StatusOr<std::byte*> {
                            const cuda::ScopedContext current(*driver_, context_);
                            SPCCL_RETURN_IF_ERROR(current.status());
                            void* memory = nullptr;
                            SPCCL_RETURN_IF_ERROR(Check(
                                driver_->MemHostAlloc(&memory, bytes, cuda::kMemHostAllocPortable),
                                "cuMemHostAlloc"));
                            return static_cast<std::byte*>(memory);
                          },
                          .free =
                              [this](std::byte* memory) {
                                const cuda::ScopedContext current(*driver_, context_);
                                (void)driver_->MemFreeHost(memory);
                              },
                          .may_free = may_free,
                          .make_header = nullptr});
}

absl::StatusOr<void*> GpuDevice::MakeHeader() {
  const std::lock_guard lock(headers_mutex_);
  if (header_slabs_.empty() || headers_used_ == kHeadersOfSlab) {
    const cuda::ScopedContext current(*driver_, context_);
    SPCCL_RETURN_IF_ERROR(current.status());
    void* slab = nullptr;
    SPCCL_RETURN_IF_ERROR(Check(
        driver_->MemHostAlloc(&slab, kHeadersOfSlab * kHeaderBytes, cuda::kMemHostAllocPortable),
        "cuMemHostAlloc"));
    header_slabs_.push_back(slab);
    headers_used_ = 0;
  }
  return static_cast<std::byte*>(header_slabs_.back()) + headers_used_++ * kHeaderBytes;
}

GpuDevice::~GpuDevice() {
  Close();
}

void GpuDevice::Close() {
  if (std::exchange(closed_, true)) return;
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    woken_.notify_one();
    thread_.join();
  }
  if (context_ == nullptr) return;
  {
    const cuda::ScopedContext current(*driver_, context_);
    const bool works = status().ok();
    for (const Lane& lane : lanes_) {
      // Whoever was called back has returned then.
      if (works) (void)driver_->StreamSynchronize(lane.stream);
      (void)driver_->StreamDestroy(lane.stream);
      if (lane.scratch != 0) (void)driver_->MemFree(lane.scratch);
    }
    for (const cuda::DevicePtr scratch : old_scratch_) (void)driver_->MemFree(scratch);
    wait_streams_.insert(wait_streams_.end(), copy_streams_.begin(), copy_streams_.end());
    for (const cuda::Stream stream : wait_streams_) {
      if (stream == nullptr) continue;
      if (works) (void)driver_->StreamSynchronize(stream);
      (void)driver_->StreamDestroy(stream);
    }
    frames_.reset();
    pinned_.reset();
    for (void* const slab : header_slabs_) (void)driver_->MemFreeHost(slab);
  }
  // What a GPU that has stuck may still call stays.
  static auto* const kept = new std::vector<std::unique_ptr<Waiting>>;
  std::move(given_up_.begin(), given_up_.end(), std::back_inserter(*kept));
  (void)driver_->DevicePrimaryCtxRelease(device_);
}

void GpuDevice::Post(std::function<void()> work) {
  // Within the lock: whoever takes the work may be all that keeps this GPU.
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  woken_.notify_one();
}

absl::Status GpuDevice::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void GpuDevice::Fail(absl::Status status) {
  status = Annotate(status, absl::StrCat("GPU ", index_, " (", name_, ") has failed"));
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;  // the first reason counts
    status_ = status;
  }
  Log(LogLevel::kError, "gpu", std::string(status.message()));
  Post([this, status] { EndAll(status); });
}

device::Queue GpuDevice::QueueOf(uint64_t lane) {
  return {.stream = lanes_[lane % lanes_.size()].stream, .resident_blocks = resident_blocks_};
}

absl::StatusOr<uint64_t> GpuDevice::ScratchOf(uint64_t lane, size_t bytes) {
  Lane& of = lanes_[lane % lanes_.size()];
  if (of.scratch_bytes >= bytes) return of.scratch;
  // What is there may still be in use, and to free memory waits for all that the context does,
  // which may wait for a rank. Twice as large each time: together no more than the last.
  bytes = std::bit_ceil(bytes);
  if (of.scratch != 0) old_scratch_.push_back(std::exchange(of.scratch, 0));
  of.scratch_bytes = 0;
  SPCCL_RETURN_IF_ERROR(Check(driver_->MemAlloc(&of.scratch, bytes), "cuMemAlloc"));
  of.scratch_bytes = bytes;
  return of.scratch;
}

void* GpuDevice::TakeWaitStream() {
  if (free_wait_streams_.empty()) {
    cuda::Stream stream = nullptr;
    if (wait_streams_.size() == kWaitStreams ||
        driver_->StreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0) != cuda::kSuccess) {
      return nullptr;
    }
    wait_streams_.push_back(stream);
    return stream;
  }
  const cuda::Stream stream = free_wait_streams_.back();
  free_wait_streams_.pop_back();
  return stream;
}

void GpuDevice::GiveWaitStream(void* stream) {
  free_wait_streams_.push_back(static_cast<cuda::Stream>(stream));
}

absl::StatusOr<void*> GpuDevice::CopyStream(Way way) {
  cuda::Stream& stream = copy_streams_[static_cast<size_t>(way)];
  if (stream == nullptr) {
    SPCCL_RETURN_IF_ERROR(
        Check(driver_->StreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0),
              "cuStreamCreateWithPriority"));
  }
  return stream;
}

absl::StatusOr<void*> GpuDevice::MakeStream() {
  cuda::Stream stream = nullptr;
  SPCCL_RETURN_IF_ERROR(
      Check(driver_->StreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0),
            "cuStreamCreateWithPriority"));
  return stream;
}

void GpuDevice::EndStream(void* stream) {
  (void)driver_->StreamDestroy(static_cast<cuda::Stream>(stream));
}

void GpuDevice::WhenEnded(void* stream, std::function<bool()> waits,
                          std::function<void(const absl::Status&)> ended) {
  absl::Status status = this->status();
  if (status.ok()) {
    auto waiting = std::make_unique<Waiting>(Waiting{.gpu = this,
                                                     .number = next_number_++,
                                                     .stream = static_cast<cuda::Stream>(stream),
                                                     .waits = std::move(waits),
                                                     .since_ns = MonotonicNanos(),
                                                     .works_since_ns = std::nullopt,
                                                     .ended = std::move(ended)});
    if (!waiting->waits) waiting->works_since_ns = waiting->since_ns;
    const cuda::Result result = driver_->LaunchHostFunc(waiting->stream, &OnEnded, waiting.get());
    if (result == cuda::kSuccess) {
      waiting_.emplace(waiting->number, std::move(waiting));
      return;
    }
    ended = std::move(waiting->ended);
    Fail(Check(result, "cuLaunchHostFunc"));
    status = this->status();
  }
  Post([ended = std::move(ended), status] { ended(status); });
}

// On a thread of the driver's.
void GpuDevice::OnEnded(void* argument) {
  const auto* const waiting = static_cast<const Waiting*>(argument);
  // The entry may be freed as soon as its number is in the queue.
  GpuDevice* const gpu = waiting->gpu;
  const uint64_t number = waiting->number;
  gpu->Post([gpu, number] { gpu->End(number); });
}

void GpuDevice::End(uint64_t number) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;  // given up
  const std::unique_ptr<Waiting> waiting = std::move(found->second);
  waiting_.erase(found);
  waiting->ended(absl::OkStatus());
}

void GpuDevice::EndAll(const absl::Status& status) {
  std::map<uint64_t, std::unique_ptr<Waiting>> all = std::exchange(waiting_, {});
  for (auto& [number, waiting] : all) {
    const auto ended = std::move(waiting->ended);
    given_up_.push_back(std::move(waiting));
    ended(status);
  }
}

void GpuDevice::PollUntil(std::function<bool()> check) {
  Post([this, check = std::move(check)]() mutable { polls_.push_back(std::move(check)); });
}

void GpuDevice::RunPolls() {
  if (polls_.empty()) return;
  std::vector<std::function<bool()>> polls = std::exchange(polls_, {});
  std::erase_if(polls, [](const auto& check) { return check(); });
  // What was added meanwhile comes after.
  std::move(polls_.begin(), polls_.end(), std::back_inserter(polls));
  polls_ = std::move(polls);
}

// Asked anew each time: a rank's process can take its word back before the stream has looked.
int64_t GpuDevice::WorksForNs(Waiting& waiting, int64_t now_ns) {
  if (waiting.waits && waiting.waits()) {
    waiting.works_since_ns.reset();
    return 0;
  }
  if (!waiting.works_since_ns.has_value()) waiting.works_since_ns = now_ns;
  return now_ns - *waiting.works_since_ns;
}

// A context with an error calls nobody back; nor does a GPU that has stuck.
void GpuDevice::Watch() {
  const int64_t now_ns = MonotonicNanos();
  if (waiting_.empty() || now_ns - watched_ns_ < kWatchNs) return;
  watched_ns_ = now_ns;
  for (const auto& [number, waiting] : waiting_) {
    if (now_ns - waiting->since_ns < kWatchNs) continue;
    const cuda::Result result = driver_->StreamQuery(waiting->stream);
    if (result == cuda::kSuccess) continue;
    if (result != cuda::kErrorNotReady) return Fail(Check(result, "cuStreamQuery"));
    const int64_t works_ns = WorksForNs(*waiting, now_ns);
    if (works_ns > options_.stuck_after_ns) {
      return Fail(absl::DeadlineExceededError(
          absl::StrCat("its work has not ended for ", works_ns / 1'000'000, " ms")));
    }
  }
}

int64_t GpuDevice::SleepNs() const {
  if (!polls_.empty()) return kPollNs;
  return waiting_.empty() ? 0 : kWatchNs;
}

void GpuDevice::Loop() {
  (void)driver_->CtxSetCurrent(context_);
  std::vector<std::function<void()>> work;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (queue_.empty()) {
      if (stops_) return;
      const int64_t sleep_ns = SleepNs();
      if (sleep_ns == 0) {
        woken_.wait(lock);
      } else {
        woken_.wait_for(lock, std::chrono::nanoseconds(sleep_ns));
      }
    }
    std::swap(work, queue_);
    lock.unlock();
    for (std::function<void()>& one : work) one();
    work.clear();
    RunPolls();
    Watch();
    lock.lock();
  }
}

}  // namespace spccl::runtime
