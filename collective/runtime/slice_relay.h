// One rank's memory in an operation that passes through shared slots, slice by slice, as the task
// sees it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spccl::runtime {

// Slice s of a buffer are its bytes from s * slot_bytes() on. The rank's process hands its slices
// over in order, as far ahead as it has slots; each is reduced in place and handed back.
// Thread-safe.
class SliceRelay {
 public:
  virtual ~SliceRelay() = default;

  // A multiple of every element's width and of 64; equal for all relays of an operation.
  virtual size_t slot_bytes() const = 0;
  // Whether the rank has handed slice `slice` over.
  virtual bool IsHere(uint64_t slice) const = 0;
  // Blocks until it has, or until the time (MonotonicNanos). As IsHere.
  virtual bool Await(uint64_t slice, int64_t until_ns) = 0;
  // Has the task nudged at the rank's next hand-over. As IsHere: true if it has come just now.
  virtual bool AskForNudge(uint64_t slice) = 0;
  // The bytes of a slice that is here; other slices share the memory before and after.
  virtual std::byte* Slot(uint64_t slice) = 0;
  virtual void HandBack(uint64_t slice) = 0;
  // The operation runs on the rank's buffers instead. Before the first HandBack.
  virtual void Decline() = 0;
};

}  // namespace spccl::runtime
