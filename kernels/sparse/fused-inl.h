// One hop of a sparse ring: a frame arrives, the local elements are added, and what goes on is
// encoded again, without ever writing the sum as dense elements.
#pragma once

#include "kernels/sparse/reduce-inl.h"

namespace spccl::sparse {

// T: the frames' storage type. D: the local elements' (T, or a 16-bit float where T is float). The
// frame that goes out is what encoding (local + frame) gives, and is encoded as EncodePici does.
template <class T, class D>
struct AddAndEncodePici {
  static constexpr uint32_t kThreads = kBlockLanes;
  using U = Unsigned<sizeof(T)>;
  using Map = MapOf<D>;
  struct Shared {
    EncodeShared<U> out;
    TileBitmap in;
  };
  struct Params {
    const void* dense;
    ConstPiciFrame from;
    uint64_t magnitude;  // of T
    LookBack look_back;
    PiciFrame to;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& shared, const Params& params) {
    if (params.to.facts.elements == 0) {
      if (lane.Warp() == 0) FinishPici(lane, params.to, 0);
      return;
    }
    TakeTile(lane, shared.out, params.look_back);
    const uint32_t tile = shared.out.turn.tile;
    D local[kLaneElements];
    LoadTile<D>(lane, At(params.dense, uint64_t{tile} * kTile * sizeof(D)),
                CountOf(params.to.facts.elements, tile), local);
    const uint32_t base = OpenTile(lane, params.from, tile, shared.in);
    const uint8_t* const values =
        At(params.from.frame, params.from.values_offset + uint64_t{base} * sizeof(T));
    U sums[kLaneElements];
    SPCCL_UNROLL
    for (uint32_t p = 0; p < Map::kPieces; ++p) {
      const uint32_t first = Map::First(lane.Thread(), p);
      const uint32_t bits = shared.in.Bits(first, Map::kPiece);
      const uint32_t rank = shared.in.Rank(first);
      SPCCL_UNROLL
      for (uint32_t k = 0; k < Map::kPiece; ++k) {
        T sum = ToFrameType(local[p * Map::kPiece + k]);
        if ((bits >> k & 1) != 0) {
          sum = Sum<T, T>(sum, LoadAt<T>(values, rank + BitCount(bits & BitsBelow(k))));
        }
        sums[p * Map::kPiece + k] = std::bit_cast<U>(sum);
      }
    }
    EncodeTile<Map>(lane, shared.out, sums, static_cast<U>(params.magnitude), params.look_back,
                    params.to);
  }

 private:
  // Of the same type, bit for bit: what the frame does not hold must not go through a conversion.
  static SPCCL_DEVICE T ToFrameType(D value) {
    if constexpr (std::is_same_v<T, D>) {
      return value;
    } else {
      return Widen<T>(value);
    }
  }
};

}  // namespace spccl::sparse
