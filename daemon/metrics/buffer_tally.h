// How many buffers are registered, by kind, kept up to date so that nobody has to walk them all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spccl::daemon::metrics {

// Shared memory; the client's own, read in place; a GPU's, opened by a legacy handle or by
// descriptors; shared memory through which a GPU's is copied.
enum class BufferKind : uint8_t { kMapped, kAttach, kCudaIpc, kCudaFd, kStaged };
inline constexpr size_t kBufferKindCount = 5;

constexpr std::string_view NameOf(BufferKind kind) {
  constexpr std::string_view kNames[kBufferKindCount] = {"mapped", "attach", "cuda-ipc", "cuda-fd",
                                                         "staged"};
  return kNames[static_cast<size_t>(kind)];
}

class BufferTally {
 public:
  struct Count {
    uint64_t buffers = 0, bytes = 0;
    bool operator==(const Count&) const = default;
  };

  void Add(BufferKind kind, uint64_t bytes) {
    ++counts_[static_cast<size_t>(kind)].buffers;
    counts_[static_cast<size_t>(kind)].bytes += bytes;
  }
  void Remove(BufferKind kind, uint64_t bytes) {
    --counts_[static_cast<size_t>(kind)].buffers;
    counts_[static_cast<size_t>(kind)].bytes -= bytes;
  }
  const Count& Of(BufferKind kind) const { return counts_[static_cast<size_t>(kind)]; }

 private:
  std::array<Count, kBufferKindCount> counts_{};
};

}  // namespace spccl::daemon::metrics
