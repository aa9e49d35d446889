// Buffers of frames, kept between operations: a fresh large buffer costs page faults that can take
// longer than the frame's whole journey.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace spccl::transport {

class FramePool;

// For how long frames were on their way: at least one of those that were begun had not ended.
// Thread-safe.
class BusyMeter {
 public:
  void Begin();
  void End();
  // Until now.
  uint64_t busy_ns() const;

 private:
  mutable std::mutex mutex_;
  uint64_t open_ = 0, busy_ns_ = 0;
  int64_t since_ns_ = 0;
};

// Owner of one frame, alone or with others: a 64-byte aligned buffer and how much of it is used.
// Movable; the last owner gives the buffer back to its pool, which must outlive it.
class Frame {
 public:
  Frame() = default;
  Frame(Frame&& other) noexcept { Swap(other); }
  Frame& operator=(Frame&& other) noexcept {
    Frame taken(std::move(other));
    Swap(taken);
    return *this;
  }
  ~Frame();

  bool valid() const { return data_ != nullptr; }
  // Another owner of the same bytes, of the same size. From then on nobody may write to them, until
  // one owner is left.
  Frame Share() const;
  // Whether this is the only owner, so that the bytes may be changed.
  bool unique() const;
  std::byte* data() const { return data_; }
  size_t capacity_bytes() const { return capacity_bytes_; }
  size_t size_bytes() const { return size_bytes_; }
  void set_size_bytes(size_t bytes) { size_bytes_ = bytes; }
  // From now until this owner gives the frame up, which a transport does when it has put it out,
  // the meter runs. Nothing of Share().
  void Meter(std::shared_ptr<BusyMeter> meter) {
    meter->Begin();
    meter_ = std::move(meter);
  }

 private:
  friend class FramePool;
  // In front of the bytes, in a line of its own.
  struct Owners {
    std::atomic<uint32_t> count;
  };
  static constexpr size_t kLine = 64;
  Owners* owners() const { return reinterpret_cast<Owners*>(data_ - kLine); }

  Frame(FramePool* pool, std::byte* data, size_t capacity_bytes)
      : pool_(pool), data_(data), capacity_bytes_(capacity_bytes) {}
  void Swap(Frame& other) {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(capacity_bytes_, other.capacity_bytes_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(meter_, other.meter_);
  }

  FramePool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  size_t capacity_bytes_ = 0;
  size_t size_bytes_ = 0;
  std::shared_ptr<BusyMeter> meter_;
};

// Thread-safe. How many frames are out at once is bounded by those who take them (a task opens only
// so many lanes); the pool bounds what it keeps for later.
class FramePool {
 public:
  explicit FramePool(size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  // The process's pool; keeps at most 64 MiB.
  static FramePool& Shared();

  // A frame with room for `bytes` bytes, bytes <= kLargestFrame, and size 0.
  Frame Take(size_t bytes);

  size_t kept_bytes() const;
  // Frees what it keeps, not what is out.
  void Trim();

  static constexpr size_t kLargestFrame = size_t{64} << 20;

 private:
  friend class Frame;
  void Give(std::byte* data, size_t capacity_bytes);

  // Sizes are powers of two from 2^kSmallest on, so that a buffer serves many an operation.
  static constexpr int kSmallest = 10;
  static constexpr int kLargest = 26;

  const size_t keep_bytes_;
  mutable std::mutex mutex_;
  size_t kept_bytes_ = 0;
  std::array<std::vector<std::byte*>, kLargest - kSmallest + 1> free_;  // last given, first taken
};

}  // namespace spccl::transport
