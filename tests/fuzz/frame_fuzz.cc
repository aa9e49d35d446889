// Any bytes are either refused by Validate() or can be decoded, reduced and encoded again without
// touching a byte outside buffers of exact size, with every target giving the same result.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/crc32c.h"
#include "kernels/host/codec.h"

namespace spccl {
namespace {

// Exact heap blocks, so that AddressSanitizer sees any access past their ends.
using Block = std::unique_ptr<uint8_t[]>;

Block CopyOf(const uint8_t* from, size_t size) {
  Block block(new uint8_t[size]);
  if (size != 0) std::memcpy(block.get(), from, size);
  return block;
}

void Require(bool so) {
  if (!so) std::abort();
}

// Mutations rarely get the checksum right by themselves: put it right, so that what lies behind is
// reached.
void RepairChecksum(uint8_t* frame, size_t size) {
  if (size < sizeof(FrameHeader)) return;
  const uint32_t crc = Crc32c(frame, offsetof(FrameHeader, header_crc));
  std::memcpy(frame + offsetof(FrameHeader, header_crc), &crc, sizeof(crc));
}

// Encodes what was decoded; its decoding must be the same elements again.
void RoundTrip(const FrameHeader& header, const uint8_t* dense, size_t dense_bytes) {
  const auto format = static_cast<Format>(header.format);
  const auto dtype = static_cast<DType>(header.dtype);
  Block again(new uint8_t[MaxFrameBytes(format, dtype, header.element_count) + kEncodeSlack]);
  const Encoded encoded = Encode(format, dtype, dense, header.element_count, again.get());
  // A frame may hold zeros as values; ours never do.
  Require(encoded.nnz <= header.nnz);
  const Block exact = CopyOf(again.get(), encoded.frame_bytes);
  Require(Validate(exact.get(), encoded.frame_bytes, dtype, header.element_count).ok());
  Block decoded(new uint8_t[dense_bytes]);
  Decode(exact.get(), decoded.get());
  if (encoded.nnz == header.nnz) {
    Require(dense_bytes == 0 || std::memcmp(decoded.get(), dense, dense_bytes) == 0);
  }
}

// What was decoded of a lossy frame, encoded lossily again, is a valid frame.
void RoundTripLossy(const FrameHeader& header, const uint8_t* dense) {
  const auto format = static_cast<Format>(header.format);
  const auto dtype = static_cast<DType>(header.dtype);
  Block again(new uint8_t[MaxFrameBytes(format, dtype, header.element_count) + kEncodeSlack]);
  const auto encoded =
      format == Format::kErrorBound
          ? EncodeErrorBound(dtype, dense, header.element_count, {1e-3, true}, again.get())
          : EncodeQsgd(format, dtype, dense, header.element_count, {.seed = 1}, again.get());
  if (!encoded.has_value()) return;
  const Block exact = CopyOf(again.get(), encoded->frame_bytes);
  Require(Validate(exact.get(), encoded->frame_bytes, dtype, header.element_count).ok());
}

void Use(const uint8_t* frame, const FrameHeader& header) {
  const auto dtype = static_cast<DType>(header.dtype);
  const size_t dense_bytes = header.element_count * SizeOf(dtype);
  Block first;
  for (const std::string_view target : AvailableTargets()) {
    ForceTarget(target);
    Block dense(new uint8_t[dense_bytes]);
    Decode(frame, dense.get(), Stores::kStreaming);
    if (first == nullptr) {
      if (IsLossy(static_cast<Format>(header.format))) {
        RoundTripLossy(header, dense.get());
      } else {
        RoundTrip(header, dense.get(), dense_bytes);
      }
      first = std::move(dense);
    } else {
      Require(dense_bytes == 0 || std::memcmp(first.get(), dense.get(), dense_bytes) == 0);
    }
    const std::unique_ptr<uint8_t[]> sum(new uint8_t[dense_bytes]());
    ReduceInto(frame, sum.get(), dtype);
    if (SizeOf(dtype) == 2) {
      const std::unique_ptr<uint8_t[]> wide(new uint8_t[header.element_count * 4]());
      ReduceInto(frame, wide.get(), DType::kFloat32);
    }
  }
  ForceTarget("");
}

}  // namespace
}  // namespace spccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spccl;  // NOLINT: a fuzzer's entry
  Validate(data, size);
  const Block frame = CopyOf(data, size);
  RepairChecksum(frame.get(), size);
  if (!Validate(frame.get(), size).ok()) return 0;
  FrameHeader header;
  std::memcpy(&header, frame.get(), sizeof(header));
  if (header.element_count > (uint64_t{1} << 20)) return 0;  // only slow: an empty coo frame
  Use(frame.get(), header);
  return 0;
}
