// Dense kernels: count nonzeros, add a dense frame, reduce R inputs into outputs.
#pragma once

#include "kernels/redop.h"
#include "kernels/sparse/tile-inl.h"

namespace spccl::sparse {

// Adds the number of nonzeros to *count. Any number of blocks.
template <class U>
struct CountNonzeros {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {};
  struct Params {
    const void* dense;
    uint64_t elements;
    uint64_t magnitude;
    uint64_t* count;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const U magnitude = static_cast<U>(params.magnitude);
    const uint64_t tiles = TilesOf(params.elements);
    uint32_t found = 0;
    for (uint64_t tile = lane.Block(); tile < tiles; tile += lane.Blocks()) {
      U elements[kLaneElements];
      LoadTile<U>(lane, At(params.dense, tile * kTile * sizeof(U)),
                  static_cast<uint32_t>(Smaller(params.elements - tile * kTile, kTile)), elements);
      SPCCL_UNROLL
      for (uint32_t i = 0; i < kLaneElements; ++i) found += (elements[i] & magnitude) != 0;
    }
    uint32_t total;
    ScanWarp(lane, found, total);
    if (lane.Lane() == 0 && total != 0) lane.FetchAdd(params.count, total);
  }
};

// to[i] = from[i]. A block a tile.
template <class U>
struct CopyDense {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {};
  struct Params {
    const void* from;
    uint64_t elements;
    void* to;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    using Map = MapOf<U>;
    const uint64_t begin = uint64_t{lane.Block()} * kTile;
    if (begin >= params.elements) return;
    const uint32_t count = static_cast<uint32_t>(Smaller(params.elements - begin, kTile));
    U elements[kLaneElements];
    LoadTile<U>(lane, At(params.from, begin * sizeof(U)), count, elements);
    SPCCL_UNROLL
    for (uint32_t p = 0; p < Map::kPieces; ++p) {
      Piece<U> piece;
      SPCCL_UNROLL
      for (uint32_t k = 0; k < Map::kPiece; ++k) piece.at[k] = elements[p * Map::kPiece + k];
      StorePiece<U>(lane, At(params.to, begin * sizeof(U)), count, Map::First(lane.Thread(), p),
                    piece);
    }
  }
};

// accumulator[i] += values[i]: a dense frame's reduce-into. T, R: as in reduce-inl.h. A block a
// tile.
template <class T, class R>
struct AddDense {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {};
  struct Params {
    const void* values;
    uint64_t elements;
    void* accumulator;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    using Map = MapOf<R>;
    const uint64_t begin = uint64_t{lane.Block()} * kTile;
    const uint32_t count = static_cast<uint32_t>(Smaller(params.elements - begin, kTile));
    void* const to = At(params.accumulator, begin * sizeof(R));
    const void* const from = At(params.values, begin * sizeof(T));
    R sums[kLaneElements];
    LoadTile<R>(lane, to, count, sums);
    SPCCL_UNROLL
    for (uint32_t p = 0; p < Map::kPieces; ++p) {
      const uint32_t first = Map::First(lane.Thread(), p);
      Piece<R> piece{};
      SPCCL_UNROLL
      for (uint32_t k = 0; k < Map::kPiece; ++k) {
        if (first + k >= count) continue;
        piece.at[k] = Sum<R, T>(sums[p * Map::kPiece + k], LoadAt<T>(from, first + k));
      }
      StorePiece<R>(lane, to, count, first, piece);
    }
  }
};

// Reductions of two values. A number wins over a NaN in max and min; of two that compare equal the
// first stays. The host's (kernels/host/dense-inl.h) are the same.
struct SumOp {
  template <class A>
  static SPCCL_DEVICE A Combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) +
                            static_cast<std::make_unsigned_t<A>>(b));
    } else {
      return a + b;
    }
  }
};
struct AvgOp : SumOp {};
struct ProdOp {
  template <class A>
  static SPCCL_DEVICE A Combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {  // in 64 bits, which no promotion makes signed
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct MaxOp {
  template <class A>
  static SPCCL_DEVICE A Combine(A a, A b) {
    return a >= b || b != b ? a : b;
  }
};
struct MinOp {
  template <class A>
  static SPCCL_DEVICE A Combine(A a, A b) {
    return a <= b || b != b ? a : b;
  }
};

inline constexpr uint32_t kMaxReduceBuffers = 64;

// Inputs are combined in index order, in the accumulator's type. Every output gets the result; one
// may be an input, none may overlap one in part.
struct ReduceInputsParams {
  const void* inputs[kMaxReduceBuffers];
  void* outputs[kMaxReduceBuffers];
  uint32_t input_count;  // at least 1
  uint32_t output_count;
  uint64_t elements;
  bool aligned;  // every buffer to 16
};

// T: the storage type; A: AccumulatorOf() it. A lane takes 128 bits of every input; any number of
// blocks.
template <class T, class A, class Op>
struct ReduceInputs {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kMinBlocks = 4;  // room for 64 registers: at 32, doubles would spill
  static constexpr uint32_t kPiece = 16 / sizeof(T);
  struct Shared {};
  using Params = ReduceInputsParams;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const uint64_t stride = uint64_t{lane.Blocks()} * kBlockLanes * kPiece;
    const uint64_t begin = (uint64_t{lane.Block()} * kBlockLanes + lane.Thread()) * kPiece;
    for (uint64_t first = begin; first < params.elements; first += stride) {
      const uint32_t count = static_cast<uint32_t>(Smaller(params.elements - first, kPiece));
      ReducePiece(lane, params, first, count);
    }
  }

 private:
  template <SimtLane L>
  static SPCCL_DEVICE Piece<T> Load(L& lane, const Params& params, uint32_t input, uint64_t first,
                                    uint32_t count) {
    const void* const from = At(params.inputs[input], first * sizeof(T));
    if (params.aligned && count == kPiece) return std::bit_cast<Piece<T>>(lane.Load16Once(from));
    Piece<T> piece{};
    SPCCL_UNROLL
    for (uint32_t k = 0; k < kPiece; ++k) {
      if (k < count) piece.at[k] = LoadAt<T>(from, k);
    }
    return piece;
  }

  template <SimtLane L>
  static SPCCL_DEVICE void ReducePiece(L& lane, const Params& params, uint64_t first,
                                       uint32_t count) {
    Piece<T> next = Load(lane, params, 0, first, count);
    A sums[kPiece];
    SPCCL_UNROLL
    for (uint32_t k = 0; k < kPiece; ++k) sums[k] = Widen<A>(next.at[k]);
    for (uint32_t input = 1; input < params.input_count; ++input) {
      next = Load(lane, params, input, first, count);
      SPCCL_UNROLL
      for (uint32_t k = 0; k < kPiece; ++k) {
        sums[k] = Op::template Combine<A>(sums[k], Widen<A>(next.at[k]));
      }
    }
    Piece<T> result;
    SPCCL_UNROLL
    for (uint32_t k = 0; k < kPiece; ++k) {
      if constexpr (std::is_same_v<Op, AvgOp>) sums[k] /= static_cast<A>(params.input_count);
      result.at[k] = Narrow<T>(sums[k]);
    }
    for (uint32_t output = 0; output < params.output_count; ++output) {
      StorePieceTo(lane, At(params.outputs[output], first * sizeof(T)), count, params.aligned,
                   result);
    }
  }

  template <SimtLane L>
  static SPCCL_DEVICE void StorePieceTo(L& lane, void* to, uint32_t count, bool aligned,
                                        const Piece<T>& piece) {
    if (aligned && count == kPiece) {
      lane.Store16Once(to, std::bit_cast<Vec16>(piece));
      return;
    }
    SPCCL_UNROLL
    for (uint32_t k = 0; k < kPiece; ++k) {
      if (k < count) StoreAt<T>(to, k, piece.at[k]);
    }
  }
};

}  // namespace spccl::sparse
