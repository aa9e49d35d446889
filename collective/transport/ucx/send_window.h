// How much of what a link was given to send UCX has not put out yet.
#pragma once

#include <atomic>
#include <cstdint>

namespace spccl::transport::ucx {

// Thread-safe. From kFullBytes on those who ask are told to wait, until kLowBytes are left: enough
// to keep a fast link busy meanwhile, little enough that others' frames do not wait for long behind
// it.
class SendWindow {
 public:
  static constexpr uint64_t kFullBytes = uint64_t{2} << 20;
  static constexpr uint64_t kLowBytes = uint64_t{1} << 20;

  void Add(uint64_t bytes) { unsent_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // True if somebody was told to wait who may go on now: they must be told.
  bool Remove(uint64_t bytes) {
    // Sequentially consistent, as in HasRoom: who waits has stored `wanted_` before it found no
    // room; so either it sees these bytes gone, or this sees that it waits.
    const uint64_t left = unsent_bytes_.fetch_sub(bytes, std::memory_order_seq_cst) - bytes;
    return left <= kLowBytes && wanted_.load(std::memory_order_seq_cst) &&
           wanted_.exchange(false, std::memory_order_seq_cst);
  }

  bool HasRoom() {
    if (unsent_bytes_.load(std::memory_order_relaxed) < kFullBytes) return true;
    wanted_.store(true, std::memory_order_seq_cst);
    return unsent_bytes_.load(std::memory_order_seq_cst) < kFullBytes;
  }

  uint64_t unsent_bytes() const { return unsent_bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> unsent_bytes_{0};
  std::atomic<bool> wanted_{false};
};

}  // namespace spccl::transport::ucx
