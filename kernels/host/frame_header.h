// Headers of frames, for those that write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/crc32c.h"
#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/layout.h"

namespace spccl::host {

inline FrameHeader ReadHeader(const void* frame) {
  FrameHeader header;
  std::memcpy(&header, frame, sizeof(header));
  return header;
}

inline void ZeroPadding(uint8_t* frame, uint64_t from, uint64_t to) {
  std::memset(frame + from, 0, to - from);
}

inline void WriteHeader(Format format, DType dtype, uint64_t elements, uint64_t nnz,
                        const FrameLayout& layout, uint8_t* frame) {
  FrameHeader header = {
      .magic = kFrameMagic,
      .version = kFrameVersion,
      .format = static_cast<uint8_t>(format),
      .dtype = static_cast<uint8_t>(dtype),
      .reserved = 0,
      .element_count = elements,
      .nnz = nnz,
      .payload_bytes = layout.total - sizeof(FrameHeader),
      .bitmap_offset = static_cast<uint32_t>(layout.bitmap),
      .index_offset = static_cast<uint32_t>(layout.index),
      .values_offset = static_cast<uint32_t>(layout.values),
      .header_crc = 0,
  };
  header.header_crc = Crc32c(&header, offsetof(FrameHeader, header_crc));
  std::memcpy(frame, &header, sizeof(header));
}

}  // namespace spccl::host
