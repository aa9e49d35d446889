// What a thread has just done, kept for those who ask later: the newest spans of one thread's work,
// in a ring of fixed size. Nothing is allocated and nobody is waited for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "collective/phase.h"
#include "collective/policy/decision.h"
#include "kernels/format.h"

namespace spccl::runtime {

enum class SpanKind : uint8_t {
  kLocal,      // a slice of the local plan: all ranks' inputs read, the results written
  kGather,     // this node's inputs reduced, before they are sent or combined with what came
  kEncode,     // deciding and compressing
  kSend,       // handing to the transport
  kReduce,     // what came combined with what is here
  kStore,      // what came written to the outputs: decoded, or copied where it is dense
  kWaitFrame,  // no work: what a participant waited for, from when it could have gone on
  kWaitRoom,
};
inline constexpr int kSpanKindCount = 8;

constexpr std::string_view NameOf(SpanKind kind) {
  constexpr std::string_view kNames[kSpanKindCount] = {
      "local", "gather", "encode", "send", "reduce", "store", "wait-frame", "wait-room"};
  return kNames[static_cast<int>(kind)];
}

inline constexpr uint32_t kNoRank = UINT32_MAX;

// Times are MonotonicNanos().
struct Span {
  uint64_t operation = 0;  // Task::operation()
  int64_t begin_ns = 0;
  uint32_t duration_ns = 0;  // what does not fit is the most that does
  uint32_t bytes = 0;       // of the frame that came or was sent; of the values where there is none
  uint32_t rank = kNoRank;  // whose work it is: the lowest of a participant's; kNoRank: of all here
  uint32_t peer = kNoRank;  // whom it came from or was sent to
  uint32_t lane = 0;        // the slice
  uint32_t chunk = 0;
  SpanKind kind = SpanKind::kLocal;
  Format format = Format::kDense;  // of the frame
  Phase phase = Phase::kReduceScatter;
  policy::Link link = policy::Link::kIntra;
  float density = -1;  // of the frame; below 0: not known (dense, or no frame)

  // From `begin` to `end`, both MonotonicNanos().
  void SetTimes(int64_t begin, int64_t end) {
    begin_ns = begin;
    duration_ns = end - begin >= UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(end - begin);
  }
};

// One thread writes; any thread reads. What is read is whole: a span that is overwritten meanwhile
// is left out.
class SpanRing {
 public:
  // Keeps the newest `spans`, rounded up to a power of two.
  explicit SpanRing(size_t spans);
  SpanRing(const SpanRing&) = delete;
  SpanRing& operator=(const SpanRing&) = delete;

  // The ring that this thread's work is written to; nullptr: it is not kept. Borrowed.
  static SpanRing* OfThisThread() { return of_this_thread_; }
  static void SetOfThisThread(SpanRing* ring) { of_this_thread_ = ring; }

  // The following are the writing thread's.

  // What Write() puts down from now on belongs to a slice that began then; 0: not timed.
  void BeginSlice(int64_t began_ns) { slice_began_ns_ = began_ns; }
  int64_t slice_began_ns() const { return slice_began_ns_; }
  void Write(const Span& span);

  // Any thread's. Oldest first.
  std::vector<Span> Read() const;

 private:
  // A span as words, so that reading one while it is written is no race.
  static constexpr size_t kWords = 6;
  static_assert(sizeof(Span) <= kWords * sizeof(uint64_t));
  struct alignas(64) Slot {
    // 2 n + 1 while the n-th span is written to it, 2 n + 2 afterwards.
    std::atomic<uint64_t> turn{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };

  static inline thread_local SpanRing* of_this_thread_ = nullptr;

  const size_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> written_{0};
  int64_t slice_began_ns_ = 0;
};

}  // namespace spccl::runtime
