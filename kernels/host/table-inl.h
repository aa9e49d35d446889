// Fills a target's table from the bodies.
#pragma once

#include "kernels/host/codec_errorbound-inl.h"
#include "kernels/host/codec_gap-inl.h"
#include "kernels/host/codec_qsgd-inl.h"
#include "kernels/host/codec_reduce-inl.h"
#include "kernels/host/dense_dispatch-inl.h"

namespace spccl::host {
namespace {

#define SPCCL_BY_WIDTH(BODY) \
  { BODY<S, uint8_t>, BODY<S, uint16_t>, BODY<S, uint32_t>, BODY<S, uint64_t> }

#define SPCCL_LOSSY(BODY) \
  { BODY<S, float>, BODY<S, double> }

template <class S>
constexpr KernelTable MakeTable(std::string_view name) {
  return KernelTable{
      .name = name,
      .count = SPCCL_BY_WIDTH(Count),
      .encode_pici = SPCCL_BY_WIDTH(EncodePici),
      .encode_column = SPCCL_BY_WIDTH(EncodeColumn),
      .encode_coo = SPCCL_BY_WIDTH(EncodeCoo),
      .decode_pici = SPCCL_BY_WIDTH(DecodePici),
      .decode_column = SPCCL_BY_WIDTH(DecodeColumn),
      .decode_coo = SPCCL_BY_WIDTH(DecodeCoo),
      .pack_gap = PackGap<S>,
      .decode_gap = SPCCL_BY_WIDTH(DecodeGap),
      .reduce_pici = ReducePici<S>,
      .reduce_column = ReduceColumn<S>,
      .reduce_coo = ReduceCoo<S>,
      .reduce_gap = ReduceGap<S>,
      .reduce_dense = ReduceDense<S>,
      .largest_finite = SPCCL_LOSSY(LargestFinite),
      .encode_errorbound = SPCCL_LOSSY(EncodeErrorBound),
      .decode_errorbound = SPCCL_LOSSY(DecodeErrorBound),
      .reduce_errorbound = SPCCL_LOSSY(ReduceErrorBound),
      .encode_qsgd = SPCCL_LOSSY(EncodeQsgd),
      .decode_qsgd = SPCCL_LOSSY(DecodeQsgd),
      .reduce_qsgd = SPCCL_LOSSY(ReduceQsgd),
      .reduce = ReduceAny<S>,
      .copy = Copy<S>,
      .widen = WidenAny<S>,
      .accumulate = AccumulateAny<S>,
      .finish = FinishAny<S>,
  };
}
#undef SPCCL_BY_WIDTH
#undef SPCCL_LOSSY

}  // namespace
}  // namespace spccl::host
