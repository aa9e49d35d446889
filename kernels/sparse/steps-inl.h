// The steps of a reduction whose partial sums are kept in memory: widen, accumulate, finish; and
// copying to many outputs. What they write is what the host's (kernels/host/dense.h) write.
//
// In all of them a lane owns as many neighbours as 128 bits of the accumulator hold, and moves them
// by one access where everything is aligned. On the narrower side those are fewer bits: a warp's
// still lie beside each other. Any number of blocks.
#pragma once

#include "kernels/sparse/dense-inl.h"

namespace spccl::sparse {

// Neighbours that are moved together.
template <class T, uint32_t kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T at[kCount];
};

// The pack of an array at `from`, of which `count` elements are there, zeros past them. `aligned`:
// to the whole pack.
template <class T, uint32_t kCount, SimtLane L>
SPCCL_DEVICE Pack<T, kCount> LoadPack(L& lane, const void* from, uint32_t count, bool aligned) {
  using P = Pack<T, kCount>;
  if (aligned && count == kCount) {
    if constexpr (sizeof(P) == sizeof(Vec16)) {
      return std::bit_cast<P>(lane.Load16Once(from));
    } else {
      return LoadAt<P>(from, 0);
    }
  }
  P pack{};
  SPCCL_UNROLL
  for (uint32_t k = 0; k < kCount; ++k) {
    if (k < count) pack.at[k] = LoadAt<T>(from, k);
  }
  return pack;
}

template <class T, uint32_t kCount, SimtLane L>
SPCCL_DEVICE void StorePack(L& lane, void* to, uint32_t count, bool aligned,
                            const Pack<T, kCount>& pack) {
  if (aligned && count == kCount) {
    if constexpr (sizeof(pack) == sizeof(Vec16)) {
      lane.Store16Once(to, std::bit_cast<Vec16>(pack));
    } else {
      StoreAt(to, 0, pack);
    }
    return;
  }
  SPCCL_UNROLL
  for (uint32_t k = 0; k < kCount; ++k) {
    if (k < count) StoreAt<T>(to, k, pack.at[k]);
  }
}

// Calls use(first, count) for every pack of the lane's among `elements`.
template <uint32_t kCount, SimtLane L, class Use>
SPCCL_DEVICE void ForEachPack(L& lane, uint64_t elements, const Use& use) {
  const uint64_t stride = uint64_t{lane.Blocks()} * kBlockLanes * kCount;
  const uint64_t begin = (uint64_t{lane.Block()} * kBlockLanes + lane.Thread()) * kCount;
  for (uint64_t first = begin; first < elements; first += stride) {
    use(first, static_cast<uint32_t>(Smaller(elements - first, kCount)));
  }
}

// accumulator[i] = widen(input[i]). The two do not overlap.
template <class T, class A>
struct WidenInto {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kCount = 16 / sizeof(A);
  using From = Pack<T, kCount>;
  struct Shared {};
  struct Params {
    const void* input;
    void* accumulator;
    uint64_t elements;
    bool aligned;  // input to a From, accumulator to 16
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    ForEachPack<kCount>(lane, params.elements, [&](uint64_t first, uint32_t count) {
      const From from =
          LoadPack<T, kCount>(lane, At(params.input, first * sizeof(T)), count, params.aligned);
      Pack<A, kCount> wide;
      SPCCL_UNROLL
      for (uint32_t k = 0; k < kCount; ++k) wide.at[k] = Widen<A>(from.at[k]);
      StorePack(lane, At(params.accumulator, first * sizeof(A)), count, params.aligned, wide);
    });
  }
};

// accumulator[i] = accumulator[i] op partial[i]. They may be one array.
template <class A, class Op>
struct AccumulateInto {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kCount = 16 / sizeof(A);
  struct Shared {};
  struct Params {
    const void* partial;
    void* accumulator;
    uint64_t elements;
    bool aligned;  // both to 16
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    ForEachPack<kCount>(lane, params.elements, [&](uint64_t first, uint32_t count) {
      void* const to = At(params.accumulator, first * sizeof(A));
      Pack<A, kCount> sums = LoadPack<A, kCount>(lane, to, count, params.aligned);
      const Pack<A, kCount> partial =
          LoadPack<A, kCount>(lane, At(params.partial, first * sizeof(A)), count, params.aligned);
      SPCCL_UNROLL
      for (uint32_t k = 0; k < kCount; ++k) {
        sums.at[k] = Op::template Combine<A>(sums.at[k], partial.at[k]);
      }
      StorePack(lane, to, count, params.aligned, sums);
    });
  }
};

struct FinishParams {
  const void* accumulator;
  void* outputs[kMaxReduceBuffers];
  uint32_t output_count;
  uint32_t ranks;
  uint64_t elements;
  bool aligned;  // accumulator to 16, outputs to a pack
};

// outputs[j][i] = round(accumulator[i]), divided by `ranks` where Op is AvgOp. Outputs overlap
// neither each other nor, but for one that is the accumulator where T is A, the accumulator.
template <class T, class A, class Op>
struct FinishInto {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kMinBlocks = 4;  // as ReduceInputs: a division takes registers
  static constexpr uint32_t kCount = 16 / sizeof(A);
  using To = Pack<T, kCount>;
  struct Shared {};
  using Params = FinishParams;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    ForEachPack<kCount>(lane, params.elements, [&](uint64_t first, uint32_t count) {
      const Pack<A, kCount> sums = LoadPack<A, kCount>(
          lane, At(params.accumulator, first * sizeof(A)), count, params.aligned);
      To to;
      SPCCL_UNROLL
      for (uint32_t k = 0; k < kCount; ++k) {
        A value = sums.at[k];
        if constexpr (std::is_same_v<Op, AvgOp>) value /= static_cast<A>(params.ranks);
        to.at[k] = Narrow<T>(value);
      }
      for (uint32_t output = 0; output < params.output_count; ++output) {
        StorePack(lane, At(params.outputs[output], first * sizeof(T)), count, params.aligned, to);
      }
    });
  }
};

struct CopyToManyParams {
  const void* input;
  void* outputs[kMaxReduceBuffers];
  uint32_t output_count;
  uint64_t elements;
  bool aligned;  // all to 16
};

// outputs[j][i] = input[i], read once. No output overlaps the input.
template <class U>
struct CopyOneToMany {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kCount = 16 / sizeof(U);
  struct Shared {};
  using Params = CopyToManyParams;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    ForEachPack<kCount>(lane, params.elements, [&](uint64_t first, uint32_t count) {
      const Pack<U, kCount> pack =
          LoadPack<U, kCount>(lane, At(params.input, first * sizeof(U)), count, params.aligned);
      for (uint32_t output = 0; output < params.output_count; ++output) {
        StorePack(lane, At(params.outputs[output], first * sizeof(U)), count, params.aligned, pack);
      }
    });
  }
};

}  // namespace spccl::sparse
