// What travels between two fabrics as the header of a UCX active message. Native byte order: every
// platform of the project is little-endian.
//
// A header that came from a peer is checked by ParseMessage, for what can be checked without
// knowing communicators; every other field is the sender's claim.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/transport/transport.h"

namespace spccl::transport::ucx {

// A communicator's name, or a secret that a link's peer must present.
struct Key128 {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const Key128&, const Key128&) = default;
};

// Unguessable: from the kernel's random source.
Key128 RandomKey();

enum class MessageKind : uint8_t {
  kHello,   // the first message on a link; sequence 0
  kAnswer,  // to a hello
  kOpen,    // the sender has opened operation `sequence`: everything of it may be sent
  kFrame,
  kClose,   // the sender has closed the communicator: it needs no frame of it any more
  kProbe,   // one of kProbes that a side may send on a link, to measure it; its bytes say nothing
  kProbed,  // to probes: so many (`sequence`) have arrived, lately an eighth of that in `index` ns
};
inline constexpr int kMessageKindCount = 7;

// Whether bytes (frame_bytes of them, one at least) come with the message.
constexpr bool CarriesBytes(MessageKind kind) {
  return kind == MessageKind::kFrame || kind == MessageKind::kProbe;
}

// What both sides of an operation must agree on.
struct OperationFacts {
  OpDesc op;
  uint64_t plan = 0;     // digest of the plan and the slices; the caller's choice
  bool on_gpus = false;  // where the ranks' buffers are
  bool operator==(const OperationFacts&) const = default;
};

// "all_reduce of 100 float32, sum", for errors; and with the digest, ", plan 17".
std::string DescribeCall(const OperationFacts& facts);
std::string Describe(const OperationFacts& facts);

struct Message {
  MessageKind kind = MessageKind::kHello;
  Key128 token = {};         // of the link; the receiver gave it out
  Key128 communicator = {};  // kOpen, kFrame, kClose
  uint64_t sequence = 0;
  OperationFacts facts = {};  // kOpen, kFrame
  // kFrame:
  Tag tag = {};
  uint8_t stream = 0;  // the sender's worker
  uint64_t index = 0;  // of the frame among those of its operation, link and stream, from 0 on
  uint64_t frame_bytes = 0;  // kFrame, kProbe
  // What comes with the message is the frame from here on: all of it if part_offset is 0 and so
  // many bytes come, else a part of kPartBytes, or what is left for the last. Parts come in any
  // order; those of one frame have the same number, that no other frame has which is on its way
  // over the stream.
  uint64_t part_offset = 0;
  uint32_t part_of = 0;
};

// A part, its message and UCX's own headers fit into one of the segments that UCX copies into (see
// context.cc): so UCX has nothing to put together.
inline constexpr uint64_t kPartBytes = 58U << 10;
// How many bytes come with a message that brings a part.
constexpr uint64_t PartBytesOf(const Message& message) {
  const uint64_t left = message.frame_bytes - message.part_offset;
  return left < kPartBytes ? left : kPartBytes;
}

// What a message counts for while the receiver has not opened its operation, and the most that
// these may come to on a link (see link.h). Both are part of the protocol.
inline constexpr uint64_t kEarlyBytes = 4U << 20;
constexpr uint64_t EarlyCost(const Message& message) {
  return message.frame_bytes + 512;
}

// What measures a link: frames of a usual size, at most so many in each direction, 32 MiB. The peer
// answers after every kProbesAnAnswer of them. All three are part of the protocol.
inline constexpr uint64_t kProbeBytes = 128U << 10;  // each
inline constexpr uint64_t kProbes = 256;
inline constexpr uint64_t kProbesAnAnswer = 16;
static_assert(kProbesAnAnswer % 16 == 0 && kProbes % kProbesAnAnswer == 0);

inline constexpr unsigned kActiveMessageId = 17;  // of all messages, with UCX
inline constexpr uint8_t kWireVersion = 2;
inline constexpr size_t kMessageBytes = 120;
using MessageBytes = std::array<std::byte, kMessageBytes>;

MessageBytes FormatMessage(const Message& message);

// nullopt if these bytes are no message of this version, or one with a field out of its range.
std::optional<Message> ParseMessage(std::span<const std::byte> bytes);

// What one side gives to the other over the control connection, as bytes.
struct Offer {
  Key128 token;                        // what the other side must present with each message
  std::vector<std::string> addresses;  // of the workers; what UCX connects to
};
std::string FormatOffer(const Offer& offer);
// Detects damage, not malice: UCX trusts an address, so offers come only from a proven peer.
absl::StatusOr<Offer> ParseOffer(std::string_view bytes);

}  // namespace spccl::transport::ucx
