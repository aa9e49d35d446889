// Which numbers of a rank's sequence have been seen: each may come once, not far ahead of the
// oldest that is still missing (several threads of a rank may overtake each other a little).
#pragma once

#include <bitset>
#include <cstdint>

namespace spccl::daemon {

class SequenceWindow {
 public:
  // Above the number of operations that a session may have under way, so that no correct client
  // meets it.
  static constexpr uint64_t kAhead = 1024;

  enum class Verdict : uint8_t { kNew, kReplayed, kTooFar };

  Verdict Accept(uint64_t sequence) {
    if (sequence < base_) return Verdict::kReplayed;
    if (sequence - base_ >= kAhead) return Verdict::kTooFar;
    if (seen_[sequence % kAhead]) return Verdict::kReplayed;
    seen_[sequence % kAhead] = true;
    while (seen_[base_ % kAhead]) {
      seen_[base_ % kAhead] = false;
      ++base_;
    }
    return Verdict::kNew;
  }

  uint64_t base() const { return base_; }  // the lowest number that has not come

 private:
  uint64_t base_ = 0;
  std::bitset<kAhead> seen_;
};

}  // namespace spccl::daemon
