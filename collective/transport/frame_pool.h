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

struct FrameBlock;

// Where the memory of frames comes from, and goes back to. Thread-safe; outlives its frames.
class FrameHome {
 public:
  virtual void Give(FrameBlock* block) = 0;

 protected:
  ~FrameHome() = default;
};

// The memory of one frame, as its home made it.
struct FrameBlock {
  std::atomic<uint32_t> owners{1};
  // Somebody may still write to it, who knows when: its home gives it to nobody any more.
  bool lost = false;
  int32_t gpu = -1;  // whose memory `data` is: a number of runtime::Gpus; -1: the host's
  FrameHome* home = nullptr;
  std::byte* data = nullptr;
  size_t capacity_bytes = 0;
  // Where the host has the frame's header, a FrameHeader: at `data`, or, of a frame in a GPU's
  // memory, in pinned memory of its own, which is kept equal to what is at `data`.
  void* header = nullptr;
};

// Owner of one frame, alone or with others: an aligned buffer (host: to 64 bytes; a GPU's: to 256)
// and how much of it is used. Movable; the last owner gives the buffer back to its home, which must
// outlive it.
class Frame {
 public:
  Frame() = default;
  // The first owner of the block.
  explicit Frame(FrameBlock* block) : block_(block), data_(block->data) {}
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
  // A GPU's pointer if the frame is in its memory: the host follows it only in host memory.
  std::byte* data() const { return data_; }
  int gpu() const { return block_->gpu; }
  // The frame's header, for the host to read: see FrameBlock.
  void* header() const { return block_->header; }
  size_t capacity_bytes() const { return block_->capacity_bytes; }
  size_t size_bytes() const { return size_bytes_; }
  void set_size_bytes(size_t bytes) { size_bytes_ = bytes; }
  // See FrameBlock::lost. Of frames whose home knows of it (runtime::StagingPool); the only owner.
  void Lose() { block_->lost = true; }
  // From now until this owner gives the frame up, which a transport does when it has put it out,
  // the meter runs. Nothing of Share().
  void Meter(std::shared_ptr<BusyMeter> meter) {
    meter->Begin();
    meter_ = std::move(meter);
  }

 private:
  void Swap(Frame& other) {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(meter_, other.meter_);
  }

  FrameBlock* block_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  std::shared_ptr<BusyMeter> meter_;
};

// Frames in the host's memory. Thread-safe. How many frames are out at once is bounded by those who
// take them (a task opens only so many lanes); the pool bounds what it keeps for later.
class FramePool final : public FrameHome {
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
  void Give(FrameBlock* block) override;

  // Sizes are powers of two from 2^kSmallest on, so that a buffer serves many an operation.
  static constexpr int kSmallest = 10;
  static constexpr int kLargest = 26;

  const size_t keep_bytes_;
  mutable std::mutex mutex_;
  size_t kept_bytes_ = 0;
  std::array<std::vector<FrameBlock*>, kLargest - kSmallest + 1> free_;  // last given, first taken
};

}  // namespace spccl::transport
