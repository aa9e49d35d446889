#include "collective/transport/nccl/wire.h"

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::transport::nccl {
namespace {

constexpr uint8_t kWireVersion = 1;
constexpr uint8_t kAnnounces = 1, kOffers = 2;

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutBytes(std::string_view bytes) { bytes_.append(bytes); }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Once something was not there, everything is zero and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size(); }
  void Refuse() { ok_ = false; }

  template <typename T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::string_view bytes = GetBytes(sizeof value);
    if (ok_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view GetBytes(size_t count) {
    if (!ok_ || bytes_.size() < count) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  // Of items of at least `least_bytes` each: no more than can be there.
  size_t GetCount(size_t least_bytes) {
    const auto count = Get<uint32_t>();
    if (count > kMostItems || count * least_bytes > bytes_.size()) ok_ = false;
    return ok_ ? count : 0;
  }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

void PutFrame(Writer* out, const Announced& frame) {
  out->Put(frame.id);
  out->Put(static_cast<uint8_t>((frame.announces ? kAnnounces : 0) | (frame.offers ? kOffers : 0)));
  if (frame.announces) {
    out->Put(frame.tag.from);
    out->Put(frame.tag.to);
    out->Put(frame.tag.lane);
    out->Put(frame.tag.chunk);
    out->Put(static_cast<uint8_t>(frame.tag.phase));
    out->Put(frame.from);
    out->Put(frame.bytes);
  }
  if (frame.offers) out->Put(frame.head);
}

Announced GetFrame(Reader* in) {
  Announced frame;
  frame.id = in->Get<uint64_t>();
  const auto flags = in->Get<uint8_t>();
  if (flags == 0 || flags > (kAnnounces | kOffers)) in->Refuse();
  frame.announces = (flags & kAnnounces) != 0;
  frame.offers = (flags & kOffers) != 0;
  if (frame.announces) {
    frame.tag.from = in->Get<uint32_t>();
    frame.tag.to = in->Get<uint32_t>();
    frame.tag.lane = in->Get<uint64_t>();
    frame.tag.chunk = in->Get<uint32_t>();
    const auto phase = in->Get<uint8_t>();
    if (phase >= kPhaseCount) in->Refuse();
    frame.tag.phase = static_cast<Phase>(phase);
    frame.from = in->Get<uint32_t>();
    frame.bytes = in->Get<uint64_t>();
    if (frame.bytes > FramePool::kLargestFrame) in->Refuse();
  }
  if (frame.offers) frame.head = in->Get<std::array<std::byte, kHeadBytes>>();
  return frame;
}

void PutTransfers(Writer* out, const std::vector<Transfer>& transfers) {
  SPCCL_CHECK(transfers.size() <= kMostItems);
  out->Put(static_cast<uint32_t>(transfers.size()));
  for (const Transfer& transfer : transfers) {
    out->Put(transfer.id);
    out->Put(transfer.from);
    out->Put(transfer.to);
    out->Put(transfer.bytes);
  }
}

void GetTransfers(Reader* in, std::vector<Transfer>* transfers) {
  transfers->resize(in->GetCount(24));
  for (Transfer& transfer : *transfers) {
    transfer.id = in->Get<uint64_t>();
    transfer.from = in->Get<uint32_t>();
    transfer.to = in->Get<uint32_t>();
    transfer.bytes = in->Get<uint64_t>();
    if (transfer.bytes > FramePool::kLargestFrame) in->Refuse();
  }
}

void PutBody(Writer* out, const Message& message) {
  switch (message.kind) {
    case MessageKind::kUniqueId:
      return out->Put(message.unique_id);
    case MessageKind::kFailed:
      out->Put(message.rank);
      return out->PutBytes(std::string_view(message.text).substr(0, kMostText));
    case MessageKind::kOpen:
      out->Put(message.communicator);
      out->Put(message.sequence);
      return out->Put(message.plan);
    case MessageKind::kClose:
      return out->Put(message.communicator);
    case MessageKind::kAnnounce:
      SPCCL_CHECK(message.frames.size() <= kMostItems);
      out->Put(message.communicator);
      out->Put(message.sequence);
      out->Put(static_cast<uint32_t>(message.frames.size()));
      for (const Announced& frame : message.frames) PutFrame(out, frame);
      return;
    case MessageKind::kDeclined:
      SPCCL_CHECK(message.ids.size() <= kMostItems);
      out->Put(static_cast<uint32_t>(message.ids.size()));
      for (const uint64_t id : message.ids) out->Put(id);
      return;
    case MessageKind::kReady:
      return PutTransfers(out, message.transfers);
    case MessageKind::kGroup:
      out->Put(message.group);
      return PutTransfers(out, message.transfers);
    case MessageKind::kDone:
      return out->Put(message.group);
    case MessageKind::kWant:
      return;
  }
}

void GetBody(Reader* in, Message* message) {
  switch (message->kind) {
    case MessageKind::kUniqueId:
      message->unique_id = in->Get<UniqueId>();
      return;
    case MessageKind::kFailed:
      message->rank = in->Get<uint32_t>();
      if (in->left() > kMostText) in->Refuse();
      message->text = std::string(in->GetBytes(in->left()));
      return;
    case MessageKind::kOpen:
      message->communicator = in->Get<Key128>();
      message->sequence = in->Get<uint64_t>();
      message->plan = in->Get<uint64_t>();
      return;
    case MessageKind::kClose:
      message->communicator = in->Get<Key128>();
      return;
    case MessageKind::kAnnounce:
      message->communicator = in->Get<Key128>();
      message->sequence = in->Get<uint64_t>();
      message->frames.resize(in->GetCount(9));
      for (Announced& frame : message->frames) frame = GetFrame(in);
      return;
    case MessageKind::kDeclined:
      message->ids.resize(in->GetCount(8));
      for (uint64_t& id : message->ids) id = in->Get<uint64_t>();
      return;
    case MessageKind::kReady:
      return GetTransfers(in, &message->transfers);
    case MessageKind::kGroup:
      message->group = in->Get<uint64_t>();
      return GetTransfers(in, &message->transfers);
    case MessageKind::kDone:
      message->group = in->Get<uint64_t>();
      return;
    case MessageKind::kWant:
      return;
  }
}

}  // namespace

std::string FormatMessage(const Message& message) {
  Writer out;
  out.Put(kWireVersion);
  out.Put(static_cast<uint8_t>(message.kind));
  PutBody(&out, message);
  return out.Take();
}

absl::StatusOr<Message> ParseMessage(std::string_view bytes) {
  Reader in(bytes);
  const auto version = in.Get<uint8_t>();
  const auto kind = in.Get<uint8_t>();
  if (!in.ok() || version != kWireVersion || kind >= kMessageKindCount) {
    return absl::InvalidArgumentError("no message of a GPU world, or one of another version");
  }
  Message message{.kind = static_cast<MessageKind>(kind)};
  GetBody(&in, &message);
  if (!in.ok() || in.left() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a malformed message of kind ", kind));
  }
  return message;
}

}  // namespace spccl::transport::nccl
