#include "collective/transport/ucx/parts.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::transport::ucx {

absl::StatusOr<Frame> Parts::Take(const Message& message, std::span<const std::byte> bytes) {
  const uint64_t total = message.frame_bytes, offset = message.part_offset;
  const auto lie = [&](auto... what) {
    return absl::DataLossError(
        absl::StrCat("a part at ", offset, " of a frame of ", total, " bytes ", what...));
  };
  SPCCL_CHECK(offset < total && bytes.size() == PartBytesOf(message));
  Link& link = links_.at(message.token);
  const auto [entry, fresh] = link.frames.try_emplace({message.stream, message.part_of});
  Incomplete& incomplete = entry->second;
  if (fresh) {
    if (link.frames.size() > kMostFrames || link.bytes + total > kMostBytes) {
      link.frames.erase(entry);
      return lie("comes while ", link.frames.size(), " frames of ", link.bytes,
                 " bytes are incomplete");
    }
    link.bytes += total;
    incomplete.frame = pool_->Take(total);
    incomplete.frame.set_size_bytes(total);
    incomplete.missing = (total + kPartBytes - 1) / kPartBytes;
    incomplete.there.resize(incomplete.missing);
  }
  if (incomplete.frame.size_bytes() != total) {
    return lie("is of one of ", incomplete.frame.size_bytes());
  }
  if (incomplete.there[offset / kPartBytes]) return lie("comes twice");
  incomplete.there[offset / kPartBytes] = true;
  std::memcpy(incomplete.frame.data() + offset, bytes.data(), bytes.size());
  if (--incomplete.missing > 0) return Frame();
  Frame whole = std::move(incomplete.frame);
  link.bytes -= total;
  link.frames.erase(entry);
  return whole;
}

}  // namespace spccl::transport::ucx
