// A borrowed view of one rank's buffer: mapped into this process, reached by cross-memory attach,
// or in a GPU's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "collective/runtime/process_memory.h"

namespace spccl::runtime {

// Trivially copyable; the owner of the mapping (or of the process's memory) outlives every task
// that holds a view.
class MemoryView {
 public:
  MemoryView() = default;
  static MemoryView Mapped(std::byte* data) { return MemoryView(data, nullptr, 0); }
  static MemoryView Remote(const ProcessMemory* process, uint64_t address) {
    return MemoryView(nullptr, process, address);
  }

  // A pointer of the driver's, valid in the context of GPU number `gpu` of runtime::Gpus.
  static MemoryView Device(uint64_t pointer, int gpu) {
    MemoryView view(nullptr, nullptr, pointer);
    view.gpu_ = gpu;
    return view;
  }

  bool mapped() const { return data_ != nullptr; }
  bool on_gpu() const { return gpu_ >= 0; }
  int gpu() const { return gpu_; }               // -1: host memory
  std::byte* data() const { return data_; }      // nullptr if remote
  uint64_t address() const { return address_; }  // remote, or the device's pointer

  // Copies between the buffer, from `offset_bytes` on, and local memory. Errors of a remote range
  // are ProcessMemory's. Not for a GPU's memory.
  absl::Status Read(uint64_t offset_bytes, void* destination, size_t bytes) const;
  absl::Status Write(uint64_t offset_bytes, const void* source, size_t bytes) const;

  // Whether the byte at `offset_bytes` is the other view's at `other_offset_bytes`: in-place
  // operations. A mapped view and a remote one are told apart, whatever they show.
  bool SameByte(uint64_t offset_bytes, const MemoryView& other, uint64_t other_offset_bytes) const {
    if (mapped() != other.mapped()) return false;
    if (mapped()) return data_ + offset_bytes == other.data_ + other_offset_bytes;
    return process_ == other.process_ && gpu_ == other.gpu_ &&
           address_ + offset_bytes == other.address_ + other_offset_bytes;
  }

 private:
  MemoryView(std::byte* data, const ProcessMemory* process, uint64_t address)
      : data_(data), process_(process), address_(address) {}

  std::byte* data_ = nullptr;
  const ProcessMemory* process_ = nullptr;
  uint64_t address_ = 0;
  int gpu_ = -1;
};

}  // namespace spccl::runtime
