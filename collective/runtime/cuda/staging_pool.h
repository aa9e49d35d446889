// Frames in a GPU's memory, or in pinned memory of the host: few, kept until the pool closes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/transport/frame_pool.h"

namespace spccl::runtime {

// Thread-safe. Outlives its frames.
class StagingPool final : public transport::FrameHome {
 public:
  // Where memory comes from; each call may be slow.
  struct Source {
    std::function<absl::StatusOr<std::byte*>(size_t bytes)> make;
    std::function<void(std::byte*)> free;
    // Whether to free does not wait for what may not come before something else is made; null: it
    // never does.
    std::function<bool()> may_free = {};
    // Room for a header that the host reads, one a block, kept as long as the pool: null if the
    // block's own bytes are the host's.
    std::function<absl::StatusOr<void*>()> make_header;
  };
  // `gpu`: whose memory it is, -1: the host's. What is out and what is kept is never more than
  // `most_bytes`.
  StagingPool(int gpu, size_t most_bytes, Source source);
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // ResourceExhausted: nor by giving up what is kept, as far as that may be freed now.
  absl::StatusOr<transport::Frame> Take(size_t bytes);
  // As Take, for those who can do without: frees nothing, and leaves half of `most_bytes` to the
  // others. `make`: whether new memory may be made, too.
  absl::StatusOr<transport::Frame> TakeSpare(size_t bytes, bool make);
  void Give(transport::FrameBlock* block) override;
  size_t frames_out() const;

 private:
  using Block = transport::FrameBlock;
  static constexpr int kSmallest = 10;
  static constexpr int kSizes = 30;

  using Lock = std::unique_lock<std::mutex>;

  void FreeAll(const std::vector<Block*>& blocks);
  // The following require mutex_.
  transport::Frame Out(Block* block);
  Block* TakeKept(int size, int largest);
  // Takes away blocks that are kept, to be freed, until so many more bytes may be made.
  bool MakeRoom(size_t bytes, std::vector<Block*>* freed);
  // Lets go of the lock meanwhile.
  absl::StatusOr<Block*> Make(Lock* lock, size_t capacity);

  const int gpu_;
  const size_t most_bytes_;
  const Source source_;
  mutable std::mutex mutex_;
  size_t bytes_ = 0;  // out and kept
  size_t out_ = 0;    // frames
  size_t out_bytes_ = 0;
  std::array<std::vector<Block*>, kSizes> free_;
  std::vector<Block*> lost_;
  std::vector<void*> headers_;  // of blocks that were freed
};

}  // namespace spccl::runtime
