// A borrowed view of one rank's buffer: mapped into this process, reached by cross-memory attach,
// or in a GPU's memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace spccl::runtime {

// Trivially copyable; the owner of the mapping (or of the process's pidfd) outlives every task that
// holds a view.
class MemoryView {
 public:
  MemoryView() = default;
  static MemoryView Mapped(std::byte* data) { return MemoryView(data, 0, 0); }
  static MemoryView Remote(pid_t pid, uint64_t address) {
    return MemoryView(nullptr, pid, address);
  }

  // A pointer of the driver's, valid in the context of GPU number `gpu` of runtime::Gpus.
  static MemoryView Device(uint64_t pointer, int gpu) {
    MemoryView view(nullptr, 0, pointer);
    view.gpu_ = gpu;
    return view;
  }

  bool mapped() const { return data_ != nullptr; }
  bool on_gpu() const { return gpu_ >= 0; }
  int gpu() const { return gpu_; }           // -1: host memory
  std::byte* data() const { return data_; }  // nullptr if remote
  pid_t pid() const { return pid_; }
  uint64_t address() const { return address_; }  // remote, or the device's pointer

  // Copies between the buffer, from `offset_bytes` on, and local memory. A remote range that is not
  // there (unmapped, read-only, process gone) is an InvalidArgument or NotFound with the address.
  // Not for a GPU's memory.
  absl::Status Read(uint64_t offset_bytes, void* destination, size_t bytes) const;
  absl::Status Write(uint64_t offset_bytes, const void* source, size_t bytes) const;

  // Whether the byte at `offset_bytes` is the other view's at `other_offset_bytes`: in-place
  // operations. A mapped view and a remote one are told apart, whatever they show.
  bool SameByte(uint64_t offset_bytes, const MemoryView& other, uint64_t other_offset_bytes) const {
    if (mapped() != other.mapped()) return false;
    if (mapped()) return data_ + offset_bytes == other.data_ + other_offset_bytes;
    return pid_ == other.pid_ && gpu_ == other.gpu_ &&
           address_ + offset_bytes == other.address_ + other_offset_bytes;
  }

 private:
  MemoryView(std::byte* data, pid_t pid, uint64_t address)
      : data_(data), pid_(pid), address_(address) {}

  std::byte* data_ = nullptr;
  pid_t pid_ = 0;
  uint64_t address_ = 0;
  int gpu_ = -1;
};

}  // namespace spccl::runtime
