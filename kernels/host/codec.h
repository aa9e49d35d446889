// Host codecs: dense elements <-> frames, on the caller's thread, with the best instructions that
// the processor has. No function here allocates, blocks or makes a system call; all are
// thread-safe.
//
// Buffers need no alignment, but 64-byte aligned ones are fastest. Source: frames as docs/wire.md
// says; Pici after Hough et al., "Adaptive Space-efficient Collectives for Dynamic and Unstructured
// Sparsity on GPU Platforms".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/lossy.h"

namespace spccl {

// What is wrong with a frame. Trivially copyable, so that it can be passed on without allocating;
// NameOf() the code and the values of FrameFault make the message.
enum class FrameError : uint8_t {
  kNone = 0,
  kTooShort,  // fewer bytes than the header or than header + payload
  kBadMagic,
  kBadVersion,
  kBadFormat,
  kBadDType,
  kBadReserved,
  kBadCrc,
  kWrongDType,  // valid, but not what the step expects
  kWrongCount,
  kTooManyElements,
  kBadNnz,          // nnz > N, or dense with nnz != N
  kBadPayloadSize,  // not what N and nnz make, or bytes left over behind the payload
  kBadBitmapOffset,
  kBadIndexOffset,
  kBadValuesOffset,
  kBadPadding,
  kBadBitmap,   // a bit set past element_count; gap: not as many ones as the index says
  kBadIndex,    // prefix sums disagree with the popcounts; coo, gap: not rising, or past N
  kBadQuantum,  // errorbound: not a positive normal number of the type; qsgd: a scale that is none
};
std::string_view NameOf(FrameError error);

// Whether the value that was expected is the only one.
enum class Bound : uint8_t { kExactly, kLessThan, kAtMost, kAtLeast };
std::string_view NameOf(Bound bound);  // to stand before the value: "less than ", of exactly ""

struct FrameFault {
  FrameError error = FrameError::kNone;
  uint64_t at = 0;  // byte offset in the frame of the field or word at fault
  uint64_t found = 0;
  uint64_t expected = 0;
  Bound bound = Bound::kExactly;  // of `expected`
  bool ok() const { return error == FrameError::kNone; }
};

// The most bytes that a frame of `elements` elements can take (every element nonzero; gap,
// errorbound: and what the encoder needs beyond), and the exact size for a known nnz, of an exact
// format. Both include the header.
uint64_t MaxFrameBytes(Format format, DType dtype, uint64_t elements);
uint64_t FrameBytes(Format format, DType dtype, uint64_t elements, uint64_t nnz);

struct Encoded {
  uint64_t frame_bytes;
  uint64_t nnz;
};

// Encodes `elements` elements of `dtype` at `dense` into a frame at `frame`, which must have room
// for MaxFrameBytes() + kEncodeSlack bytes. The bytes past the frame's end, within that room, may
// be overwritten. Requires elements <= kMaxFrameElements and an exact format.
inline constexpr size_t kEncodeSlack = 128;
Encoded Encode(Format format, DType dtype, const void* dense, uint64_t elements, void* frame);

// The same for the lossy formats, whose dtypes are those that LossyCarries(); `nnz` is what the
// header says. Requires a valid bound: every finite element x decodes to a y with |x - y| <= bound,
// every other one to itself, bit for bit; a negative zero to a zero. The frame may be larger than a
// dense one, if the bound leaves little to gain.
Encoded EncodeErrorBound(DType dtype, const void* dense, uint64_t elements, ErrorBound bound,
                         void* frame);
// `format`: of QSGD. The same draws and elements make the same frame; over seeds, the expectation
// of each decoded element is the element, but for a few roundings of the type and 2^-24 of a level.
// Empty if an element is not finite, or a bucket's largest magnitude is not zero and outside
// [2^-100, 2^126] (float64: [2^-900, 2^1022]).
std::optional<Encoded> EncodeQsgd(Format format, DType dtype, const void* dense, uint64_t elements,
                                  const Draws& draws, void* frame);

// Makes a dense frame where its values already lie at frame + sizeof(FrameHeader), or will: writes
// the header. Returns the frame's size.
uint64_t WrapDense(DType dtype, uint64_t elements, void* frame);

// Finds every lie that a frame can tell: on success the frame may be decoded or reduced without
// touching a byte outside `frame_bytes` bytes or outside `elements` elements. `frame_bytes` is the
// frame's exact size: a header and its payload, nothing behind. `elements` and `dtype` are what the
// step expects.
FrameFault Validate(const void* frame, size_t frame_bytes, DType dtype, uint64_t elements);
// The same without an expectation: for files and tools.
FrameFault Validate(const void* frame, size_t frame_bytes);

// How results are stored: kStreaming past the caches (complete and ordered when the call returns),
// kCached through them, kAuto streaming from kStreamingBytes on.
enum class Stores : uint8_t { kAuto, kCached, kStreaming };
inline constexpr uint64_t kStreamingBytes = uint64_t{2} << 20;

// Writes the frame's elements, zeros included, to `dense`. The frame must have passed Validate(),
// and nobody may write to it in between.
void Decode(const void* frame, void* dense, Stores stores = Stores::kAuto);

// Adds the frame's elements to the accumulator: accumulator[i] += frame[i]. The accumulator has the
// frame's dtype, or float32 for a 16-bit float frame. With equal 16-bit types each sum is made in
// float32 and rounded to nearest even. The frame must have passed Validate().
void ReduceInto(const void* frame, void* accumulator, DType accumulator_dtype);

// Nonzero elements (by value: a negative zero is a zero, a NaN is not).
uint64_t CountNonzeros(DType dtype, const void* dense, uint64_t elements);

// About as many, by reading a seventeenth of a large array: exact where all or none are nonzeros.
uint64_t EstimateNonzeros(DType dtype, const void* dense, uint64_t elements);

// Instruction sets. Dispatch picks the best one that the processor has; tests and benchmarks may
// force another. Not thread-safe against running codecs.
std::span<const std::string_view> AvailableTargets();
bool ForceTarget(std::string_view name);  // false: not available; "" restores the best one
std::string_view CurrentTarget();

}  // namespace spccl
