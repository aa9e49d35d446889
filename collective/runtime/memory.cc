#include "collective/runtime/memory.h"

#include <cstring>

namespace spccl::runtime {

absl::Status MemoryView::Read(uint64_t offset_bytes, void* destination, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (!mapped()) return process_->Read(address_ + offset_bytes, destination, bytes);
  std::memcpy(destination, data_ + offset_bytes, bytes);
  return absl::OkStatus();
}

absl::Status MemoryView::Write(uint64_t offset_bytes, const void* source, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (!mapped()) return process_->Write(address_ + offset_bytes, source, bytes);
  std::memcpy(data_ + offset_bytes, source, bytes);
  return absl::OkStatus();
}

}  // namespace spccl::runtime
