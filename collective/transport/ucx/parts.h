// Frames that come in parts (wire.h, Message::part_offset), put together as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/transport/frame_pool.h"
#include "collective/transport/ucx/wire.h"

namespace spccl::transport::ucx {

// Of one worker; not thread-safe. What a peer can make it keep is bounded: a sender hands the parts
// of a frame on one after the other, so few frames of a link are incomplete at once.
class Parts {
 public:
  static constexpr size_t kMostFrames = 64;                         // incomplete, of a link
  static constexpr uint64_t kMostBytes = FramePool::kLargestFrame;  // likewise, together

  explicit Parts(FramePool* pool) : pool_(pool) {}

  // Frames are only begun for links that were admitted, by their tokens.
  void Admit(const Key128& link) { links_.try_emplace(link); }
  void Forget(const Key128& link) { links_.erase(link); }
  bool Admits(const Key128& link) const { return links_.contains(link); }

  // Requires Admits(message.token) and bytes.size() == PartBytesOf(message). The frame if this was
  // the last of its parts; no valid frame if others are missing. An error is a lie of the peer's.
  absl::StatusOr<Frame> Take(const Message& message, std::span<const std::byte> bytes);

 private:
  struct Incomplete {
    Frame frame;
    std::vector<bool> there;  // by part
    size_t missing = 0;
  };
  struct Link {
    std::map<std::pair<uint8_t, uint32_t>, Incomplete> frames;  // by stream and number
    uint64_t bytes = 0;                                         // of all of them
  };

  FramePool* const pool_;
  std::map<Key128, Link> links_;
};

}  // namespace spccl::transport::ucx
