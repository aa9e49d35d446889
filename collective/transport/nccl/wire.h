// What the nodes of a world tell each other over their control connections, about frames that NCCL
// is to move. Native byte order: every platform of the project is little-endian.
//
// Parse checks what can be checked without knowing the world; every other field is the sender's
// claim. Which message may come from whom is said in docs/adr/0021-nccl-transport.md.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/transport/nccl/abi.h"
#include "collective/transport/transport.h"

namespace spccl::transport::nccl {

// A communicator's name, the same on all nodes.
struct Key128 {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const Key128&, const Key128&) = default;
};

enum class MessageKind : uint8_t {
  kUniqueId,  // from the root: NCCL's name for the world
  kFailed,    // the world has failed there
  kOpen,      // the sender has opened operation `sequence`: its frames may be announced
  kClose,     // the sender has closed the communicator: it needs no frame of it any more
  kAnnounce,  // frames for ranks of the receiver: their sizes, or that their bytes are there, or
              // both
  kDeclined,  // announced frames that nobody takes any more
  kReady,     // to the root: frames that are there at the sender and have a place at the receiver
  kGroup,     // from the root: what is in the next group
  kDone,      // to the root: the sender's ranks are through with a group
  kWant,      // to the root: name the world, there are operations
};
inline constexpr int kMessageKindCount = 10;

// The first bytes of a frame, its header, which the receiver reads without asking the GPU.
inline constexpr size_t kHeadBytes = 48;

// One frame in a kAnnounce. Frames are numbered by the node that sends them.
struct Announced {
  uint64_t id = 0;
  bool announces = false;  // what it is: tag, from, bytes
  bool offers = false;     // its bytes are there: head
  Tag tag = {};
  uint32_t from = 0;  // rank of the world: the GPU that it lies on
  uint64_t bytes = 0;
  std::array<std::byte, kHeadBytes> head = {};
};

// One frame between two ranks of the world.
struct Transfer {
  uint64_t id = 0;  // of the sending node
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t bytes = 0;
  bool operator==(const Transfer&) const = default;
};

struct Message {
  MessageKind kind = MessageKind::kFailed;
  UniqueId unique_id = {};               // kUniqueId
  uint32_t rank = 0;                     // kFailed: of the world, whose loss it is, or kNobody
  std::string text = {};                 // kFailed, for people
  Key128 communicator = {};              // kOpen, kClose, kAnnounce
  uint64_t sequence = 0;                 // kOpen, kAnnounce
  uint64_t plan = 0;                     // kOpen: digest of what all must have alike
  std::vector<Announced> frames = {};    // kAnnounce
  std::vector<uint64_t> ids = {};        // kDeclined: of the receiver's frames
  uint64_t group = 0;                    // kGroup, kDone
  std::vector<Transfer> transfers = {};  // kReady, kGroup
};

// What one message may hold; what is more goes into several.
inline constexpr size_t kMostItems = 4096;
inline constexpr size_t kMostText = 1024;

// Text that is too long is cut; too many items are the caller's mistake.
std::string FormatMessage(const Message& message);
absl::StatusOr<Message> ParseMessage(std::string_view bytes);

}  // namespace spccl::transport::nccl
