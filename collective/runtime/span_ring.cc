#include "collective/runtime/span_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace spccl::runtime {

static_assert(std::is_trivially_copyable_v<Span>);

SpanRing::SpanRing(size_t spans)
    : mask_(std::bit_ceil(std::max<size_t>(spans, 1)) - 1), slots_(new Slot[mask_ + 1]) {}

void SpanRing::Write(const Span& span) {
  uint64_t words[kWords] = {};
  std::memcpy(words, &span, sizeof span);
  // Relaxed: this thread alone writes it.
  const uint64_t n = written_.load(std::memory_order_relaxed);
  Slot& slot = slots_[n & mask_];
  // Relaxed: each of the words is released after it, so that whoever sees one of them sees that the
  // slot is being written, and gives it up.
  slot.turn.store(2 * n + 1, std::memory_order_relaxed);
  for (size_t i = 0; i < kWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
  // Release: whoever sees this turn sees all of the words.
  slot.turn.store(2 * n + 2, std::memory_order_release);
  // Relaxed: only says where to look; each slot's turn says what is there.
  written_.store(n + 1, std::memory_order_relaxed);
}

std::vector<Span> SpanRing::Read() const {
  std::vector<Span> spans;
  // Relaxed: see Write().
  const uint64_t end = written_.load(std::memory_order_relaxed);
  const uint64_t begin = end > mask_ ? end - mask_ - 1 : 0;
  spans.reserve(end - begin);
  for (uint64_t n = begin; n < end; ++n) {
    const Slot& slot = slots_[n & mask_];
    // Acquire: pairs with the release of this turn, so that the words are not older ones.
    if (slot.turn.load(std::memory_order_acquire) != 2 * n + 2) continue;
    uint64_t words[kWords];
    // Acquire: a word of a later span brings its turn with it, which the last look then sees.
    for (size_t i = 0; i < kWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.turn.load(std::memory_order_relaxed) != 2 * n + 2) continue;
    Span span;
    std::memcpy(&span, words, sizeof span);
    spans.push_back(span);
  }
  return spans;
}

}  // namespace spccl::runtime
