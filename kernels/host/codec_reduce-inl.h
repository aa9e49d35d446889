// Bodies of reduce-into: add the elements of a frame to a dense accumulator. T is the frame's
// storage type, R the accumulator's storage type, A the type the addition is made in.
#pragma once

#include "kernels/host/codec-inl.h"

namespace spccl::host {
namespace {

// accumulator[i] += values[i] for all; elements is a multiple of the lanes.
template <class S, class T, class R, class A>
SPCCL_INLINE void AddAll(const uint8_t* values, uint8_t* accumulator, uint64_t elements) {
  constexpr size_t kStep = kLanes<S, A>;
  for (uint64_t i = 0; i < elements; i += kStep) {
    const Vec<S, A> value = LoadAs<S, T, A>(values + i * sizeof(T));
    const Vec<S, A> old = LoadAs<S, R, A>(accumulator + i * sizeof(R));
    StoreAs<S, R, A>(accumulator + i * sizeof(R), old + value);
  }
}

// The same, but leaves accumulator[i] alone, bit for bit, where values[i] is a zero: -0 + 0 would
// change it, and so would widening and narrowing a signalling NaN.
template <class S, class T, class R, class A>
SPCCL_INLINE void AddNonzeros(const uint8_t* values, uint8_t* accumulator, uint64_t elements) {
  constexpr size_t kStep = kLanes<S, A>;
  using Bits = Vec<S, Unsigned<A>>;
  for (uint64_t i = 0; i < elements; i += kStep) {
    const Vec<S, A> value = LoadAs<S, T, A>(values + i * sizeof(T));
    uint8_t* to = accumulator + i * sizeof(R);
    Vec<S, A> sum = LoadAs<S, R, A>(to) + value;
#ifdef __clang__
    // It would choose between summands, of which one is -0, instead of sums: to it a signalling NaN
    // is like any other. So it must not know what the sum is.
    asm("" : "+m"(sum));
#endif
    const Bits is_zero =
        reinterpret_cast<Bits>((reinterpret_cast<Bits>(value) & kMagnitude<A>) == 0);
    if constexpr (std::is_same_v<R, A>) {
      const Bits old = Load<Bits>(to);
      Store(to, (is_zero & old) | (~is_zero & reinterpret_cast<Bits>(sum)));
    } else {
      using Narrow = typename VectorOf<uint16_t, kStep * 2>::Type;
      Narrow rounded;
      StoreAs<S, R, A>(reinterpret_cast<uint8_t*>(&rounded), sum);
      const Narrow keep = __builtin_convertvector(is_zero, Narrow);
      Store(to, (keep & Load<Narrow>(to)) | (~keep & rounded));
    }
  }
}

template <class T, class R, class A>
SPCCL_INLINE void AddOne(const uint8_t* value, uint8_t* accumulator) {
  StoreOne<R, A>(accumulator, WrapAdd<A>(LoadOne<R, A>(accumulator), LoadOne<T, A>(value)));
}

// Where the element is that a place in the order of the bits stands for.
template <bool kColumn>
SPCCL_INLINE uint64_t PlaceOf(uint64_t position) {
  if (!kColumn) return position;
  const uint64_t in_tile = position % kTileElements;
  return position - in_tile + in_tile % 64 * 64 + in_tile / 64;
}

// Elements that are asked for before they are added by the vector, which waits for the last of
// them.
inline constexpr uint64_t kScatterAhead = 16;

// Elements of an accumulator, by their number among `positions`, u32 each.
template <class R, bool kColumn>
struct Scattered {
  const uint8_t* positions;
  uint64_t count;
  uint8_t* accumulator;

  SPCCL_INLINE uint8_t* At(uint64_t i) const {
    return accumulator + PlaceOf<kColumn>(Load<uint32_t>(positions + 4 * i)) * sizeof(R);
  }
  SPCCL_INLINE void AskFor(uint64_t begin, uint64_t end) const {
    for (uint64_t i = begin; i < Smaller(end, count); ++i) __builtin_prefetch(At(i), 1);
  }
};

// Adds the values of elements [begin, begin + count), at most a vector of A, that are to be
// converted: only by the vector is that cheap.
template <class S, class T, class R, class A, bool kColumn>
SPCCL_INLINE void AddConverted(const Scattered<R, kColumn>& to, uint64_t begin, uint64_t count,
                               const uint8_t* values) {
  constexpr size_t kStep = kLanes<S, A>;
  Vec<S, A> sum = LoadAs<S, T, A>(values);
  if constexpr (std::is_same_v<R, A>) {
    for (size_t k = 0; k < count; ++k) {
      Store(to.At(begin + k), Load<A>(to.At(begin + k)) + sum[k]);
    }
  } else {
    // Made lane by lane: read from where its elements were stored one by one, it would wait for all
    // those stores.
    typename VectorOf<Unsigned<R>, kStep * sizeof(R)>::Type old{};
#pragma GCC unroll 16
    for (size_t k = 0; k < kStep; ++k) {
      if (k < count) old[k] = Load<Unsigned<R>>(to.At(begin + k));
    }
    auto* gathered = reinterpret_cast<uint8_t*>(&old);
    StoreAs<S, R, A>(gathered, LoadAs<S, R, A>(gathered) + sum);
    for (size_t k = 0; k < count; ++k) {
      Store(to.At(begin + k), static_cast<Unsigned<R>>(old[k]));
    }
  }
}

// Adds `to.count` values to scattered elements.
template <class S, class T, class R, class A, bool kColumn>
SPCCL_INLINE void AddScattered(const Scattered<R, kColumn>& to, const uint8_t* values) {
  if constexpr (std::is_same_v<T, A>) {
    for (uint64_t i = 0; i < to.count; ++i) {
      AddOne<T, R, A>(values + i * sizeof(T), to.At(i));
    }
  } else {
    constexpr size_t kStep = kLanes<S, A>;
    to.AskFor(0, kScatterAhead);
    uint64_t i = 0;
    for (; i + kStep <= to.count; i += kStep) {
      to.AskFor(i + kScatterAhead, i + kScatterAhead + kStep);
      AddConverted<S, T, R, A>(to, i, kStep, values + i * sizeof(T));
    }
    if (i == to.count) return;
    uint8_t last[kStep * sizeof(T)] = {};
    __builtin_memcpy(last, values + i * sizeof(T), (to.count - i) * sizeof(T));
    AddConverted<S, T, R, A>(to, i, to.count - i, last);
  }
}

// A tile with fewer nonzeros than this is added one by one: below it most cache lines of the
// accumulator are never touched.
inline constexpr uint64_t kSparseTileNonzeros = kTileElements / 24;

// The elements of such tiles, one after the other, added many at a time.
template <class S, class T, class R, class A, bool kColumn>
class SparseTiles {
 public:
  SPCCL_INLINE explicit SparseTiles(uint8_t* accumulator) : accumulator_(accumulator) {}

  // The values of a tile lie behind those of the tile before, or Flush() has been called.
  SPCCL_NOINLINE void Append(uint64_t tile, const uint8_t* bitmap, const uint8_t* values) {
    if (end_ - positions_ > kRoom - kMostBytes || tile - first_ >= kMostTiles) Flush();
    if (end_ == positions_) {
      first_ = tile;
      values_ = values;
    }
    const uint64_t base = (tile - first_) * kTileElements;
    for (uint64_t w = 0; w < kTileWordCount; ++w) {
      end_ = S::AppendPositions(Load<uint64_t>(bitmap + 8 * w),
                                static_cast<uint32_t>(base + w * kWordElements), end_);
    }
  }
  SPCCL_NOINLINE void Flush() {
    const Scattered<R, kColumn> to{positions_, static_cast<uint64_t>(end_ - positions_) / 4,
                                   accumulator_ + first_ * kTileElements * sizeof(R)};
    AddScattered<S, T, R, A>(to, values_);
    end_ = positions_;
  }

 private:
  static constexpr ptrdiff_t kMostBytes = kSparseTileNonzeros * sizeof(uint32_t);  // of one tile
  static constexpr ptrdiff_t kRoom = 4096;
  // So that a position has 32 bits; and a column's tile, whose lines are gone through again and
  // again, stays in the L1 cache.
  static constexpr uint64_t kMostTiles = kColumn ? 1 : 1024;

  uint8_t* accumulator_;
  uint64_t first_ = 0;
  const uint8_t* values_ = nullptr;
  alignas(64) uint8_t positions_[kRoom + 4 * kSlackBytes];
  uint8_t* end_ = positions_;
};

template <class S, class T, class R, class A>
SPCCL_INLINE const uint8_t* AddDenseTile(const uint8_t* bitmap, const uint8_t* values,
                                         const uint8_t* values_end, uint8_t* accumulator) {
  using U = Unsigned<T>;
  WordScratch<U> scratch;
  for (uint64_t w = 0; w < kTileWordCount; ++w) {
    const uint64_t word = Load<uint64_t>(bitmap + 8 * w);
    uint8_t* to = accumulator + w * kWordElements * sizeof(R);
    const bool slack = HasSlack<U>(values, values_end, BitCount(word));
    if constexpr (S::template kAddsWords<T> && std::is_same_v<T, R>) {
      if (__builtin_expect(slack, 1)) {
        values = S::template AddWord<T>(values, word, to);
        continue;
      }
    }
    values = slack ? S::template ExpandWord<U, false>(values, word, scratch.bytes)
                   : ExpandWordNearEnd<S, U>(values, word, scratch.bytes);
    AddNonzeros<S, T, R, A>(scratch.bytes, to, kWordElements);
  }
  return values;
}

// The elements of the last tile, which the accumulator may not hold whole, one by one.
template <class S, class T, class R, class A, bool kColumn>
void AddLastTile(const uint8_t* bitmap, const uint8_t* values, uint8_t* accumulator) {
  for (uint64_t w = 0; w < kTileWordCount; ++w) {
    for (uint64_t word = Load<uint64_t>(bitmap + 8 * w); word != 0; word &= word - 1) {
      const uint64_t position = w * kWordElements + static_cast<uint64_t>(__builtin_ctzll(word));
      AddOne<T, R, A>(values, accumulator + PlaceOf<kColumn>(position) * sizeof(R));
      values += sizeof(T);
    }
  }
}

template <class S, class T, class R, class A, bool kColumn>
SPCCL_INLINE void ReduceTiles(const ConstPiciSections& in, uint64_t elements,
                              uint8_t* accumulator) {
  using U = Unsigned<T>;
  TileScratch<U> turned;
  TileScratch<U> straight;
  SparseTiles<S, T, R, A, kColumn> sparse(accumulator);
  const uint8_t* values_end = in.values + in.nnz * sizeof(T);
  const uint64_t whole_tiles = elements / kTileElements;
  for (uint64_t tile = 0; tile < TileCount(elements); ++tile) {
    const uint8_t* bitmap = in.bitmap + tile * kTileWordCount * 8;
    uint8_t* to = accumulator + tile * kTileElements * sizeof(R);
    const uint64_t begin = Load<uint32_t>(in.index + 4 * tile);
    const uint8_t* values = in.values + begin * sizeof(T);
    if (tile == whole_tiles) {
      AddLastTile<S, T, R, A, kColumn>(bitmap, values, to);
      break;
    }
    const uint64_t end =
        tile + 1 < TileCount(elements) ? Load<uint32_t>(in.index + 4 * (tile + 1)) : in.nnz;
    if (end - begin < kSparseTileNonzeros) {
      sparse.Append(tile, bitmap, values);
      continue;
    }
    sparse.Flush();
    if constexpr (kColumn) {
      ExpandWords<S, U, false>(bitmap, kTileWordCount, values, values_end, turned.bytes);
      TransposeTile<S, U>(turned.bytes, straight.bytes);
      AddNonzeros<S, T, R, A>(straight.bytes, to, kTileElements);
    } else {
      AddDenseTile<S, T, R, A>(bitmap, values, values_end, to);
    }
  }
  sparse.Flush();
}

template <class S, class T, class R, class A>
void ReducePiciAs(const ConstPiciSections& in, uint64_t elements, uint8_t* accumulator) {
  ReduceTiles<S, T, R, A, false>(in, elements, accumulator);
}

template <class S, class T, class R, class A>
void ReduceColumnAs(const ConstPiciSections& in, uint64_t elements, uint8_t* accumulator) {
  ReduceTiles<S, T, R, A, true>(in, elements, accumulator);
}

template <class S, class T, class R, class A>
void ReduceCooAs(const uint8_t* indices, const uint8_t* values, uint64_t nnz,
                 uint8_t* accumulator) {
  AddScattered<S, T, R, A>(Scattered<R, false>{indices, nnz, accumulator}, values);
}

template <class S, class T, class R, class A>
void ReduceDenseAs(const uint8_t* values, uint64_t elements, uint8_t* accumulator) {
  constexpr size_t kStep = kLanes<S, A>;
  const uint64_t whole = elements / kStep * kStep;
  AddAll<S, T, R, A>(values, accumulator, whole);
  for (uint64_t i = whole; i < elements; ++i) {
    AddOne<T, R, A>(values + i * sizeof(T), accumulator + i * sizeof(R));
  }
}

// Calls BODY<S, T, R, A>(args...) for the types that dtype and `wide` mean. Integer sums wrap, so
// both signs share the unsigned body.
#define SPCCL_REDUCE_DISPATCH(BODY, ...)                         \
  switch (dtype) {                                               \
    case DType::kInt8:                                           \
    case DType::kUint8:                                          \
      return BODY<S, uint8_t, uint8_t, uint8_t>(__VA_ARGS__);    \
    case DType::kInt32:                                          \
    case DType::kUint32:                                         \
      return BODY<S, uint32_t, uint32_t, uint32_t>(__VA_ARGS__); \
    case DType::kInt64:                                          \
    case DType::kUint64:                                         \
      return BODY<S, uint64_t, uint64_t, uint64_t>(__VA_ARGS__); \
    case DType::kFloat32:                                        \
      return BODY<S, float, float, float>(__VA_ARGS__);          \
    case DType::kFloat64:                                        \
      return BODY<S, double, double, double>(__VA_ARGS__);       \
    case DType::kFloat16:                                        \
      return wide ? BODY<S, Half, float, float>(__VA_ARGS__)     \
                  : BODY<S, Half, Half, float>(__VA_ARGS__);     \
    case DType::kBfloat16:                                       \
      return wide ? BODY<S, Brain, float, float>(__VA_ARGS__)    \
                  : BODY<S, Brain, Brain, float>(__VA_ARGS__);   \
  }

template <class S>
void ReducePici(const ConstPiciSections& in, DType dtype, bool wide, uint64_t elements,
                uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReducePiciAs, in, elements, accumulator)
}
template <class S>
void ReduceColumn(const ConstPiciSections& in, DType dtype, bool wide, uint64_t elements,
                  uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReduceColumnAs, in, elements, accumulator)
}
template <class S>
void ReduceCoo(const uint8_t* indices, const uint8_t* values, uint64_t nnz, DType dtype, bool wide,
               uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReduceCooAs, indices, values, nnz, accumulator)
}
template <class S>
void ReduceDense(const uint8_t* values, DType dtype, bool wide, uint64_t elements,
                 uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReduceDenseAs, values, elements, accumulator)
}

}  // namespace
}  // namespace spccl::host
