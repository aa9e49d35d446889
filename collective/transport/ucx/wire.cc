#include "collective/transport/ucx/wire.h"

#include <sys/random.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status.h"

namespace spccl::transport::ucx {
namespace {

constexpr uint32_t kMessageMagic = 0x4D435053;  // "SPCM"
constexpr uint32_t kOfferMagic = 0x4F435053;    // "SPCO"
constexpr uint32_t kMostWorkers = 256;
constexpr uint32_t kLargestAddress = 64U << 10;

struct RawMessage {
  uint32_t magic;
  uint8_t version;
  uint8_t kind;
  uint8_t stream;
  uint8_t phase;
  Key128 token;
  Key128 communicator;
  uint64_t sequence;
  uint8_t op_kind;
  uint8_t dtype;
  uint8_t redop;
  uint8_t on_gpus;
  uint32_t root;
  uint64_t count;
  uint64_t plan;
  uint32_t from;
  uint32_t to;
  uint64_t lane;
  uint32_t chunk;
  uint32_t part_of;
  uint64_t index;
  uint64_t frame_bytes;
  uint64_t part_offset;
};
static_assert(sizeof(RawMessage) == kMessageBytes);
static_assert(alignof(RawMessage) == 8);

void Append(std::string* bytes, uint32_t value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// What only some kinds have, in its range.
bool FieldsOfKindFit(const RawMessage& raw) {
  const auto kind = static_cast<MessageKind>(raw.kind);
  if (!CarriesBytes(kind) && (raw.part_of != 0 || raw.part_offset != 0)) return false;
  switch (kind) {
    case MessageKind::kProbe:
      return raw.frame_bytes == kProbeBytes;
    case MessageKind::kProbed:
      return raw.sequence > 0 && raw.sequence <= kProbes && raw.sequence % kProbesAnAnswer == 0 &&
             raw.index > 0;
    default:
      return true;
  }
}

bool Take(std::string_view* bytes, void* value, size_t size) {
  if (bytes->size() < size) return false;
  std::memcpy(value, bytes->data(), size);
  bytes->remove_prefix(size);
  return true;
}

}  // namespace

Key128 RandomKey() {
  Key128 key;
  SPCCL_CHECK(::getrandom(&key, sizeof(key), 0) == sizeof(key));
  return key;
}

std::string DescribeCall(const OperationFacts& facts) {
  const OpDesc& op = facts.op;
  std::string text = absl::StrCat(std::string(NameOf(op.kind)), " of ", op.count, " ",
                                  std::string(NameOf(op.dtype)));
  if (Reduces(op.kind)) absl::StrAppend(&text, ", ", std::string(NameOf(op.redop)));
  if (op.kind == OpKind::kBroadcast) absl::StrAppend(&text, ", root ", op.root);
  if (facts.on_gpus) absl::StrAppend(&text, ", on GPUs");
  return text;
}

std::string Describe(const OperationFacts& facts) {
  return absl::StrCat(DescribeCall(facts), ", plan ", absl::Hex(facts.plan));
}

MessageBytes FormatMessage(const Message& message) {
  RawMessage raw = {};
  raw.magic = kMessageMagic;
  raw.version = kWireVersion;
  raw.kind = static_cast<uint8_t>(message.kind);
  raw.stream = message.stream;
  raw.phase = static_cast<uint8_t>(message.tag.phase);
  raw.token = message.token;
  raw.communicator = message.communicator;
  raw.sequence = message.sequence;
  raw.op_kind = static_cast<uint8_t>(message.facts.op.kind);
  raw.dtype = static_cast<uint8_t>(message.facts.op.dtype);
  raw.redop = static_cast<uint8_t>(message.facts.op.redop);
  raw.on_gpus = message.facts.on_gpus ? 1 : 0;
  raw.root = message.facts.op.root;
  raw.count = message.facts.op.count;
  raw.plan = message.facts.plan;
  raw.from = message.tag.from;
  raw.to = message.tag.to;
  raw.lane = message.tag.lane;
  raw.chunk = message.tag.chunk;
  raw.index = message.index;
  raw.frame_bytes = message.frame_bytes;
  raw.part_of = message.part_of;
  raw.part_offset = message.part_offset;
  MessageBytes bytes;
  std::memcpy(bytes.data(), &raw, sizeof(raw));
  return bytes;
}

std::optional<Message> ParseMessage(std::span<const std::byte> bytes) {
  RawMessage raw;
  if (bytes.size() != sizeof(raw)) return std::nullopt;
  std::memcpy(&raw, bytes.data(), sizeof(raw));
  if (raw.magic != kMessageMagic || raw.version != kWireVersion || raw.kind >= kMessageKindCount ||
      raw.phase >= kPhaseCount || !IsValidOpKind(raw.op_kind) || !IsValidDType(raw.dtype) ||
      !IsValidRedOp(raw.redop) || raw.on_gpus > 1 || raw.frame_bytes > FramePool::kLargestFrame ||
      raw.part_offset % kPartBytes != 0 ||
      (raw.part_offset != 0 && raw.part_offset >= raw.frame_bytes) || !FieldsOfKindFit(raw)) {
    return std::nullopt;
  }
  Message message;
  message.kind = static_cast<MessageKind>(raw.kind);
  message.token = raw.token;
  message.communicator = raw.communicator;
  message.sequence = raw.sequence;
  message.facts.op = {static_cast<OpKind>(raw.op_kind), static_cast<DType>(raw.dtype),
                      static_cast<RedOp>(raw.redop), raw.root, raw.count};
  message.facts.plan = raw.plan;
  message.facts.on_gpus = raw.on_gpus != 0;
  message.tag = {raw.from, raw.to, raw.lane, raw.chunk, static_cast<Phase>(raw.phase)};
  message.stream = raw.stream;
  message.index = raw.index;
  message.frame_bytes = raw.frame_bytes;
  message.part_of = raw.part_of;
  message.part_offset = raw.part_offset;
  return message;
}

std::string FormatOffer(const Offer& offer) {
  std::string bytes;
  Append(&bytes, kOfferMagic);
  Append(&bytes, kWireVersion);
  bytes.append(reinterpret_cast<const char*>(&offer.token), sizeof(offer.token));
  Append(&bytes, static_cast<uint32_t>(offer.addresses.size()));
  for (const std::string& address : offer.addresses) {
    Append(&bytes, static_cast<uint32_t>(address.size()));
    bytes.append(address);
  }
  Append(&bytes, Crc32c(bytes.data(), bytes.size()));
  return bytes;
}

absl::StatusOr<Offer> ParseOffer(std::string_view bytes) {
  const absl::Status damaged = absl::DataLossError("the peer's offer of a data link is damaged");
  uint32_t magic, version, workers, crc;
  if (bytes.size() < sizeof(crc)) return damaged;
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof(crc), sizeof(crc));
  bytes.remove_suffix(sizeof(crc));
  if (Crc32c(bytes.data(), bytes.size()) != crc) return damaged;
  Offer offer;
  if (!Take(&bytes, &magic, sizeof(magic)) || magic != kOfferMagic ||
      !Take(&bytes, &version, sizeof(version))) {
    return damaged;
  }
  if (version != kWireVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the peer speaks version ", version,
                                                      " of the data protocol, this daemon version ",
                                                      kWireVersion));
  }
  if (!Take(&bytes, &offer.token, sizeof(offer.token)) ||
      !Take(&bytes, &workers, sizeof(workers)) || workers == 0 || workers > kMostWorkers) {
    return damaged;
  }
  for (uint32_t worker = 0; worker < workers; ++worker) {
    uint32_t size;
    if (!Take(&bytes, &size, sizeof(size)) || size == 0 || size > kLargestAddress ||
        size > bytes.size()) {
      return damaged;
    }
    offer.addresses.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (!bytes.empty()) return damaged;
  return offer;
}

}  // namespace spccl::transport::ucx
