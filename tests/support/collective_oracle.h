// What a collective must compute, element by element, with none of the product's kernels or plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "collective/op.h"

namespace spccl::testing {

using Bytes = std::vector<std::byte>;

// Conversions of the 16-bit floats, round to nearest even.
float FromHalf(uint16_t bits);
uint16_t ToHalf(float value);
float FromBfloat16(uint16_t bits);
uint16_t ToBfloat16(float value);

// The rank whose element is combined first, for an element of the reduced buffer; the others follow
// in rank order, modulo the ranks. Floating-point sums depend on it.
using FirstRank = std::function<uint32_t(uint64_t element)>;

// The receive buffer of every rank, for the given send buffers. Partial results are kept in
// AccumulatorOf(dtype, redop) and rounded once. `first_rank` null: rank 0 first, everywhere.
std::vector<Bytes> CollectiveOracle(const OpDesc& op, const std::vector<Bytes>& send,
                                    const FirstRank& first_rank = nullptr);

// The first element where the buffers differ under == (two NaNs count as equal).
std::optional<uint64_t> FirstDifference(DType dtype, const Bytes& a, const Bytes& b);

// `elements` random elements, zero with probability `sparsity`; floats include negative zeros,
// and, with `specials`, infinities, NaNs and subnormals. Small integers and simple fractions, so
// that products stay finite.
Bytes RandomElements(DType dtype, uint64_t elements, double sparsity, bool specials,
                     std::mt19937_64* seeds);

// The same, of values of which every sum (of not too many) and, with `prod`, every product is
// exact, so that the order does not matter. Specials are infinities and NaNs.
Bytes ExactElements(DType dtype, uint64_t elements, double sparsity, bool prod, bool specials,
                    std::mt19937_64* seeds);

// Nonzero elements, by value.
uint64_t OracleNonzeros(DType dtype, const Bytes& data);

}  // namespace spccl::testing
