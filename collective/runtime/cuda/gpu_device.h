// A Gpu that a driver has.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/cuda/hardware_queues.h"
#include "collective/runtime/cuda/staging_pool.h"

namespace spccl::runtime {

class GpuDevice final : public Gpu {
 public:
  // Number `index` of the Gpus is the driver's number `ordinal`. The table outlives the GPU.
  static absl::StatusOr<std::unique_ptr<GpuDevice>> Create(
      std::shared_ptr<const cuda::Driver> driver, const device::CodecTable& codec, int ordinal,
      int index, const Gpus::Options& options);
  ~GpuDevice() override;

  int index() const override { return index_; }
  const cuda::Uuid& uuid() const override { return uuid_; }
  const std::string& name() const override { return name_; }
  cuda::Context context() const override { return context_; }
  void Post(std::function<void()> work) override;
  absl::Status status() const override;
  void Fail(absl::Status status) override;
  device::Queue QueueOf(uint64_t lane) override;
  void WhenEnded(void* stream, std::function<bool()> waits,
                 std::function<void(const absl::Status&)> ended) override;
  void* TakeWaitStream() override;
  void GiveWaitStream(void* stream) override;
  absl::StatusOr<void*> CopyStream(Way way) override;
  absl::StatusOr<void*> MakeStream() override;
  void EndStream(void* stream) override;
  // Relaxed: memory is taken on the issuing thread, too, where it counts.
  void CountRankWaits(int change) override {
    rank_waits_.fetch_add(change, std::memory_order_relaxed);
  }
  bool may_free() const override { return rank_waits_.load(std::memory_order_relaxed) == 0; }
  void PollUntil(std::function<bool()> check) override;
  absl::StatusOr<transport::Frame> TakeFrame(size_t bytes) override { return frames_->Take(bytes); }
  absl::StatusOr<transport::Frame> TakePinned(size_t bytes) override {
    return pinned_->Take(bytes);
  }
  absl::StatusOr<transport::Frame> TakeSparePinned(size_t bytes, bool make) override {
    return pinned_->TakeSpare(bytes, make);
  }
  absl::StatusOr<uint64_t> ScratchOf(uint64_t lane, size_t bytes) override;
  size_t frames_out() const override { return frames_->frames_out() + pinned_->frames_out(); }

  cuda::Device device() const { return device_; }
  // Frees what is the GPU's; no work is enqueued any more. By the destructor, too.
  void Close();

 private:
  // Who is told when a stream has come so far. The driver has its address until then, or for ever.
  struct Waiting {
    GpuDevice* gpu;
    uint64_t number;
    cuda::Stream stream;
    std::function<bool()> waits;
    int64_t since_ns;
    std::optional<int64_t> works_since_ns;  // since when it has been seen to wait for nobody
    std::function<void(const absl::Status&)> ended;
  };
  struct Lane {
    cuda::Stream stream = nullptr;
    cuda::DevicePtr scratch = 0;
    size_t scratch_bytes = 0;
  };

  GpuDevice(std::shared_ptr<const cuda::Driver> driver, int index, const Gpus::Options& options)
      : driver_(std::move(driver)), options_(options), index_(index) {}
  absl::Status Open(const device::CodecTable& codec, int ordinal);
  absl::Status OpenStreams();
  void MakePools();
  absl::StatusOr<void*> MakeHeader();
  absl::Status Check(cuda::Result result, std::string_view what) const;

  void Loop();
  // How long the thread may sleep if nothing comes; 0: for ever.
  int64_t SleepNs() const;
  void Watch();
  // For how long the stream has had to wait for nobody.
  static int64_t WorksForNs(Waiting& waiting, int64_t now_ns);
  void End(uint64_t number);
  void EndAll(const absl::Status& status);
  void RunPolls();
  static void OnEnded(void* waiting);

  const std::shared_ptr<const cuda::Driver> driver_;
  const Gpus::Options options_;
  const int index_;
  cuda::Device device_ = 0;
  cuda::Uuid uuid_{};
  std::string name_;
  cuda::Context context_ = nullptr;
  uint32_t resident_blocks_ = 0;
  std::unique_ptr<StagingPool> frames_, pinned_;
  std::mutex headers_mutex_;
  std::vector<void*> header_slabs_;
  size_t headers_used_ = 0;  // of the last slab
  std::atomic<int> rank_waits_ = 0;

  // The issuing thread's.
  std::vector<Lane> lanes_;
  std::vector<cuda::DevicePtr> old_scratch_;
  std::vector<cuda::Stream> free_wait_streams_, wait_streams_;
  std::array<cuda::Stream, kCopyStreams> copy_streams_{};  // by Way; null: not asked for yet
  std::map<uint64_t, std::unique_ptr<Waiting>> waiting_;
  std::vector<std::unique_ptr<Waiting>> given_up_;  // the driver may still call
  std::vector<std::function<bool()>> polls_;
  uint64_t next_number_ = 0;
  int64_t watched_ns_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<std::function<void()>> queue_;
  absl::Status status_;
  bool stops_ = false, closed_ = false;
  std::thread thread_;
};

}  // namespace spccl::runtime
