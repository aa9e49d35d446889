// The codecs of GPU memory, for whatever launches kernels: the CUDA launcher of kernels/launch, and
// the fibre machine in tests. Picks kernels by format and dtype; makes no memory and waits for
// nothing.
//
// A launcher B offers
//   b.template Launch<K>(blocks, params)   runs kernel K after all that was launched before. Keeps
//   the
//                                          first error; what comes after it is not run
//   b.Resident()                           a number of blocks that fills the device, for kernels
//   that
//                                          take any
// All pointers are the device's. Frames and scratch lie on multiples of 16 (frames have room for
// MaxFrameBytes() of kernels/host/codec.h), dense elements on multiples of their size: on 16,
// faster. A frame that is read must be valid, which includes that `info` is what its header says,
// and of an exact format: the lossy ones have no kernels.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/layout.h"
#include "kernels/sparse/column-inl.h"
#include "kernels/sparse/coo-inl.h"
#include "kernels/sparse/device_dense.h"
#include "kernels/sparse/dispatch-inl.h"
#include "kernels/sparse/fused-inl.h"
#include "kernels/sparse/gap-inl.h"
#include "kernels/sparse/pici-inl.h"
#include "kernels/sparse/reduce-inl.h"
#include "kernels/sparse/validate-inl.h"

namespace spccl::sparse {

struct FrameInfo {
  Format format;
  DType dtype;
  uint64_t elements;
  uint64_t nnz;
};

// Below one value in this many elements reduce-into adds values one by one: 8%, about where the
// lanes' 128 bits would be read and written for less than half of what they hold.
inline constexpr uint64_t kFewValues = 12;

// What encoding needs beside the frame. Zeroed once, then used by one encoding at a time, of any
// size up to the one it was made for.
constexpr uint64_t ScratchBytes(Format format, DType dtype, uint64_t elements) {
  const uint64_t states = AlignUpFrame(16 + TilesOf(elements) * sizeof(uint64_t));
  if (format != Format::kCoo && format != Format::kGap) return states;
  const uint64_t indices = format == Format::kGap ? elements * sizeof(uint32_t) : 0;
  return states + AlignUpFrame(elements * SizeOf(dtype)) + indices;
}

// How scratch of `elements` elements is laid out.
struct ScratchView {
  LookBack look_back;
  uint64_t* found;
  uint8_t* values;
  uint8_t* indices;

  ScratchView(DType dtype, uint64_t elements, void* scratch) {
    auto* const bytes = static_cast<uint8_t*>(scratch);
    look_back.turns = reinterpret_cast<uint64_t*>(bytes);
    found = reinterpret_cast<uint64_t*>(bytes + 8);
    look_back.states = reinterpret_cast<uint64_t*>(bytes + 16);
    values = bytes + AlignUpFrame(16 + TilesOf(elements) * sizeof(uint64_t));
    indices = values + AlignUpFrame(elements * SizeOf(dtype));
  }
};

constexpr FrameFacts FactsOf(Format format, DType dtype, uint64_t elements) {
  return {elements, static_cast<uint8_t>(format), static_cast<uint8_t>(dtype),
          static_cast<uint8_t>(SizeOf(dtype))};
}

inline PiciFrame PiciFrameOf(Format format, DType dtype, uint64_t elements, void* frame) {
  const FrameLayout layout = LayoutOf(format, dtype, elements, 0);
  return {static_cast<uint8_t*>(frame), FactsOf(format, dtype, elements),
          static_cast<uint32_t>(layout.index), static_cast<uint32_t>(layout.values)};
}
inline ConstPiciFrame ConstPiciFrameOf(const FrameInfo& info, const void* frame) {
  const FrameLayout layout = LayoutOf(info.format, info.dtype, info.elements, info.nnz);
  return {static_cast<const uint8_t*>(frame), static_cast<uint32_t>(layout.index),
          static_cast<uint32_t>(layout.values)};
}
inline ConstCooFrame ConstCooFrameOf(const FrameInfo& info, const void* frame) {
  const FrameLayout layout = LayoutOf(info.format, info.dtype, info.elements, info.nnz);
  return {static_cast<const uint8_t*>(frame), static_cast<uint32_t>(layout.index),
          static_cast<uint32_t>(layout.values), info.nnz};
}
inline ConstGapFrame ConstGapFrameOf(const FrameInfo& info, const void* frame) {
  const FrameLayout layout = LayoutOf(info.format, info.dtype, info.elements, info.nnz);
  const GapShape shape = GapShapeOf(info.elements, info.nnz);
  return {static_cast<const uint8_t*>(frame),
          static_cast<uint32_t>(layout.index),
          static_cast<uint32_t>(layout.bitmap),
          static_cast<uint32_t>(layout.low),
          static_cast<uint32_t>(layout.values),
          shape.shift,
          static_cast<uint32_t>(shape.tiles),
          shape.buckets,
          info.nnz};
}

// The first half of coo and gap.
template <class U, class B>
void Collect(B& launcher, DType dtype, const void* dense, uint64_t elements, void* indices,
             const ScratchView& scratch) {
  launcher.template Launch<CollectNonzeros<U>>(
      AtLeastOne(BlocksFor(TilesOf(elements), 1)),
      {dense, elements, MagnitudeMask(dtype), scratch.look_back, indices, scratch.values,
       scratch.found});
}

// Dense elements to a frame, byte for byte the host's Encode(). `scratch`: ScratchBytes() or more.
template <class B>
void Encode(B& launcher, Format format, DType dtype, const void* dense, uint64_t elements,
            void* frame, void* scratch) {
  const ScratchView view(dtype, elements, scratch);
  const PiciFrame to = PiciFrameOf(format, dtype, elements, frame);
  const uint32_t tiles = BlocksFor(TilesOf(elements), 1);
  WithWidth(dtype, [&]<class U>() {
    switch (format) {
      case Format::kDense:
        launcher.template Launch<CopyDense<U>>(AtLeastOne(tiles),
                                               {dense, elements, At(frame, sizeof(FrameHeader))});
        launcher.template Launch<FinishFrame>(1, {to.facts, nullptr, nullptr, to.frame});
        break;
      case Format::kPici:
        launcher.template Launch<EncodePici<U>>(AtLeastOne(tiles),
                                                {dense, MagnitudeMask(dtype), view.look_back, to});
        break;
      case Format::kPiciColumn:
        launcher.template Launch<EncodeColumn<U>>(
            AtLeastOne(BlocksFor(tiles, kColumnTilesPerBlock)),
            {dense, MagnitudeMask(dtype), view.look_back, to});
        break;
      case Format::kCoo:
        Collect<U>(launcher, dtype, dense, elements, At(frame, sizeof(FrameHeader)), view);
        launcher.template Launch<FinishFrame>(launcher.Resident(),
                                              {to.facts, view.found, view.values, to.frame});
        break;
      case Format::kGap: {
        Collect<U>(launcher, dtype, dense, elements, view.indices, view);
        const GapPackParams params = {to.facts, view.found, view.indices, view.values, to.frame};
        launcher.template Launch<ClearGap>(launcher.Resident(), params);
        launcher.template Launch<PackGap>(launcher.Resident(), params);
        break;
      }
      default:
        break;
    }
  });
}

// Sets *faults to 1 if the frame's body is not what a valid frame's may be; the frame has the bytes
// that `info` makes, and `info` comes from a header that was found valid. Leaves *faults alone
// otherwise.
template <class B>
void ValidateBody(B& launcher, const FrameInfo& info, const void* frame, uint32_t* faults) {
  const uint32_t tiles = BlocksFor(TilesOf(info.elements), 1);
  switch (info.format) {
    case Format::kDense:
      break;
    case Format::kPici:
    case Format::kPiciColumn:
      if (tiles == 0) break;
      launcher.template Launch<ValidatePici>(
          BlocksFor(tiles, ValidatePici::kTilesPerBlock),
          {ConstPiciFrameOf(info, frame), info.elements, info.nnz,
           info.format == Format::kPiciColumn, faults});
      break;
    case Format::kCoo:
      launcher.template Launch<ValidateCoo>(launcher.Resident(),
                                            {ConstCooFrameOf(info, frame), info.elements, faults});
      break;
    case Format::kGap:
      launcher.template Launch<ValidateGap>(launcher.Resident(),
                                            {ConstGapFrameOf(info, frame), info.elements, faults});
      break;
    default:
      break;
  }
}

// A frame's elements, zeros included.
template <class B>
void Decode(B& launcher, const FrameInfo& info, const void* frame, void* dense) {
  if (info.elements == 0) return;
  const uint32_t tiles = BlocksFor(TilesOf(info.elements), 1);
  WithWidth(info.dtype, [&]<class U>() {
    switch (info.format) {
      case Format::kDense:
        launcher.template Launch<CopyDense<U>>(
            tiles, {At(frame, sizeof(FrameHeader)), info.elements, dense});
        break;
      case Format::kPici:
        launcher.template Launch<DecodePici<U>>(
            tiles, {ConstPiciFrameOf(info, frame), info.elements, dense});
        break;
      case Format::kPiciColumn:
        launcher.template Launch<DecodeColumn<U>>(
            BlocksFor(tiles, kColumnTilesPerBlock),
            {ConstPiciFrameOf(info, frame), info.elements, dense});
        break;
      case Format::kCoo:
        launcher.template Launch<DecodeCoo<U>>(
            tiles, {ConstCooFrameOf(info, frame), info.elements, dense});
        break;
      case Format::kGap:
        launcher.template Launch<DecodeGap<U>>(
            tiles, {ConstGapFrameOf(info, frame), info.elements, dense});
        break;
      default:
        break;
    }
  });
}

// The two ways in which pici frames are added; kAuto: by the density.
enum class ReduceForm { kAuto, kFew, kMany };

// accumulator[i] += frame[i]. The accumulator has the frame's dtype, or float32 for a 16-bit float
// frame.
template <class B>
void ReduceInto(B& launcher, const FrameInfo& info, const void* frame, void* accumulator,
                DType accumulator_dtype, ReduceForm form = ReduceForm::kAuto) {
  if (info.elements == 0) return;
  const uint32_t tiles = BlocksFor(TilesOf(info.elements), 1);
  const bool few = form == ReduceForm::kFew ||
                   (form == ReduceForm::kAuto && info.nnz * kFewValues < info.elements);
  const ReduceParams params = {ConstPiciFrameOf(info, frame), info.elements, accumulator};
  WithSumTypes(info.dtype, accumulator_dtype, [&]<class T, class R>() {
    switch (info.format) {
      case Format::kDense:
        launcher.template Launch<AddDense<T, R>>(
            tiles, {At(frame, sizeof(FrameHeader)), info.elements, accumulator});
        break;
      case Format::kPici:
        if (few) {
          launcher.template Launch<ReducePiciFew<T, R>>(
              BlocksFor(tiles, ReducePiciFew<T, R>::kTilesPerBlock), params);
        } else {
          launcher.template Launch<ReducePiciMany<T, R>>(tiles, params);
        }
        break;
      case Format::kPiciColumn:
        launcher.template Launch<ReduceColumn<T, R>>(BlocksFor(tiles, kColumnTilesPerBlock),
                                                     params);
        break;
      case Format::kCoo:
        launcher.template Launch<ReduceCoo<T, R>>(launcher.Resident(),
                                                  {ConstCooFrameOf(info, frame), accumulator});
        break;
      case Format::kGap:
        launcher.template Launch<ReduceGap<T, R>>(launcher.Resident(),
                                                  {ConstGapFrameOf(info, frame), accumulator});
        break;
      default:
        break;
    }
  });
}

// The pici frame of (local + frame), in the frame's dtype. `info` is a pici frame of a dtype other
// than a 16-bit float with a float32 local; `local_dtype` is its dtype, or a 16-bit float where it
// is float32. `to` may not overlap `frame`.
template <class B>
void AddAndEncode(B& launcher, const FrameInfo& info, const void* frame, DType local_dtype,
                  const void* local, void* to, void* scratch) {
  const ScratchView view(info.dtype, info.elements, scratch);
  const PiciFrame out = PiciFrameOf(Format::kPici, info.dtype, info.elements, to);
  WithSumTypes(local_dtype, info.dtype, [&]<class D, class T>() {
    launcher.template Launch<AddAndEncodePici<T, D>>(
        AtLeastOne(BlocksFor(TilesOf(info.elements), 1)),
        {local, ConstPiciFrameOf(info, frame), MagnitudeMask(info.dtype), view.look_back, out});
  });
}

}  // namespace spccl::sparse
