// Validation of the lossy formats, and what the validators share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/format.h"
#include "kernels/host/codec.h"
#include "kernels/layout.h"

namespace spccl::host {

template <class T>
T LoadAt(const uint8_t* frame, uint64_t offset) {
  T value;
  std::memcpy(&value, frame + offset, sizeof(T));
  return value;
}

inline FrameFault Fault(FrameError error, uint64_t at, uint64_t found, uint64_t expected,
                        Bound bound = Bound::kExactly) {
  return {.error = error, .at = at, .found = found, .expected = expected, .bound = bound};
}

inline FrameFault CheckPadding(const uint8_t* frame, uint64_t from, uint64_t to) {
  for (uint64_t at = from; at < to; ++at) {
    if (frame[at] != 0) return Fault(FrameError::kBadPadding, at, frame[at], 0);
  }
  return {};
}

// Whether the header's sizes and offsets are those of the layout, and the frame as large.
FrameFault CheckPlace(const FrameHeader& header, size_t frame_bytes, const FrameLayout& layout);

// All behind the identity and the counts of a header of a lossy format. Reads nothing outside
// `frame_bytes`, whatever the frame says.
FrameFault CheckLossy(const uint8_t* frame, size_t frame_bytes, const FrameHeader& header);

}  // namespace spccl::host
