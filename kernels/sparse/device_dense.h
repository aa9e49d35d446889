// Dense elements of GPU memory, for whatever launches kernels: counting, reductions in one pass and
// in steps, copies. Launchers, pointers and alignment: as in device_codec.h, which includes this.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/dtype.h"
#include "kernels/redop.h"
#include "kernels/sparse/dispatch-inl.h"
#include "kernels/sparse/steps-inl.h"

namespace spccl::sparse {

constexpr uint32_t BlocksFor(uint64_t tiles, uint32_t tiles_per_block) {
  return static_cast<uint32_t>((tiles + tiles_per_block - 1) / tiles_per_block);
}
constexpr uint32_t AtLeastOne(uint32_t blocks) {
  return blocks == 0 ? 1 : blocks;
}

// Blocks for a kernel that takes any number, whose blocks do `per_block` of `work` at a time.
template <class B>
uint32_t BlocksForAny(const B& launcher, uint64_t work, uint32_t per_block) {
  const uint64_t wanted = (work + per_block - 1) / per_block;
  return static_cast<uint32_t>(wanted < launcher.Resident() ? wanted : launcher.Resident());
}

inline bool IsAlignedTo(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// Adds the number of nonzeros to *count.
template <class B>
void Count(B& launcher, DType dtype, const void* dense, uint64_t elements, uint64_t* count) {
  const uint32_t tiles = BlocksFor(TilesOf(elements), 1);
  if (tiles == 0) return;
  WithWidth(dtype, [&]<class U>() {
    launcher.template Launch<CountNonzeros<U>>(
        tiles < launcher.Resident() ? tiles : launcher.Resident(),
        {dense, elements, MagnitudeMask(dtype), count});
  });
}

// outputs[j][i] = op over r of inputs[r][i], as the host's Reduce(). At most kMaxReduceBuffers of
// each.
template <class B>
void Reduce(B& launcher, DType dtype, RedOp op, std::span<const void* const> inputs,
            std::span<void* const> outputs, uint64_t elements) {
  if (elements == 0 || outputs.empty()) return;
  ReduceInputsParams params = {};
  params.input_count = static_cast<uint32_t>(inputs.size());
  params.output_count = static_cast<uint32_t>(outputs.size());
  params.elements = elements;
  params.aligned = true;
  for (size_t r = 0; r < inputs.size(); ++r) {
    params.inputs[r] = inputs[r];
    params.aligned = params.aligned && IsAligned16(inputs[r]);
  }
  for (size_t j = 0; j < outputs.size(); ++j) {
    params.outputs[j] = outputs[j];
    params.aligned = params.aligned && IsAligned16(outputs[j]);
  }
  const uint64_t pieces = (elements * SizeOf(dtype) + 15) / 16;
  const uint32_t blocks = BlocksFor(pieces, kBlockLanes);
  WithReduction(dtype, op, [&]<class T, class A, class Op>() {
    launcher.template Launch<ReduceInputs<T, A, Op>>(
        blocks < launcher.Resident() ? blocks : launcher.Resident(), params);
  });
}

// Copies to each output that is not the input itself, as the host's CopyToMany(). At most
// kMaxReduceBuffers outputs.
template <class B>
void CopyToMany(B& launcher, DType dtype, const void* input, std::span<void* const> outputs,
                uint64_t elements) {
  CopyToManyParams params = {};
  params.input = input;
  params.elements = elements;
  params.aligned = IsAligned16(input);
  for (void* const output : outputs) {
    if (output == input) continue;
    params.outputs[params.output_count++] = output;
    params.aligned = params.aligned && IsAligned16(output);
  }
  if (elements == 0 || params.output_count == 0) return;
  WithWidth(dtype, [&]<class U>() {
    using Kernel = CopyOneToMany<U>;
    launcher.template Launch<Kernel>(BlocksForAny(launcher, elements, kBlockLanes * Kernel::kCount),
                                     params);
  });
}

// Calls use.operator()<T, A, Op>() for what only averages do otherwise than all other operations:
// widening and finishing.
template <class Use>
void WithStep(DType dtype, RedOp op, Use use) {
  op == RedOp::kAvg ? WithStorage<AvgOp>(dtype, use) : WithStorage<SumOp>(dtype, use);
}

// accumulator[i] = widen(input[i]), to AccumulatorOf(dtype, op). They may be one array where the
// types are equal.
template <class B>
void Widen(B& launcher, DType dtype, RedOp op, const void* input, void* accumulator,
           uint64_t elements) {
  if (AccumulatorOf(dtype, op) == dtype) {
    return CopyToMany(launcher, dtype, input, std::span<void* const>(&accumulator, 1), elements);
  }
  if (elements == 0) return;
  WithStep(dtype, op, [&]<class T, class A, class>() {
    if constexpr (!std::is_same_v<T, A>) {
      using Kernel = WidenInto<T, A>;
      const bool aligned =
          IsAlignedTo(input, sizeof(typename Kernel::From)) && IsAligned16(accumulator);
      launcher.template Launch<Kernel>(
          BlocksForAny(launcher, elements, kBlockLanes * Kernel::kCount),
          {input, accumulator, elements, aligned});
    }
  });
}

// accumulator[i] = accumulator[i] op partial[i], both of the accumulator's type.
template <class B>
void Accumulate(B& launcher, DType accumulator_dtype, RedOp op, const void* partial,
                void* accumulator, uint64_t elements) {
  if (elements == 0) return;
  const bool aligned = IsAligned16(partial) && IsAligned16(accumulator);
  // What avg divides, is summed; and a type that is widened is never an accumulator's.
  WithReduction(accumulator_dtype, op == RedOp::kAvg ? RedOp::kSum : op,
                [&]<class T, class A, class Op>() {
                  if constexpr (std::is_same_v<T, A> && !std::is_same_v<Op, AvgOp>) {
                    using Kernel = AccumulateInto<A, Op>;
                    launcher.template Launch<Kernel>(
                        BlocksForAny(launcher, elements, kBlockLanes * Kernel::kCount),
                        {partial, accumulator, elements, aligned});
                  }
                });
}

// outputs[j][i] = round(accumulator[i]); avg divides by `ranks` first. An output may be the
// accumulator where the types are equal. At most kMaxReduceBuffers outputs.
template <class B>
void Finish(B& launcher, DType dtype, RedOp op, const void* accumulator,
            std::span<void* const> outputs, uint64_t elements, uint32_t ranks) {
  if (op != RedOp::kAvg && AccumulatorOf(dtype, op) == dtype) {
    return CopyToMany(launcher, dtype, accumulator, outputs, elements);
  }
  if (elements == 0 || outputs.empty()) return;
  FinishParams params = {};
  params.accumulator = accumulator;
  params.output_count = static_cast<uint32_t>(outputs.size());
  params.ranks = ranks;
  params.elements = elements;
  WithStep(dtype, op, [&]<class T, class A, class Op>() {
    if constexpr (std::is_same_v<Op, AvgOp> || !std::is_same_v<T, A>) {
      using Kernel = FinishInto<T, A, Op>;
      params.aligned = IsAligned16(accumulator);
      for (size_t j = 0; j < outputs.size(); ++j) {
        params.outputs[j] = outputs[j];
        params.aligned = params.aligned && IsAlignedTo(outputs[j], sizeof(typename Kernel::To));
      }
      launcher.template Launch<Kernel>(
          BlocksForAny(launcher, elements, kBlockLanes * Kernel::kCount), params);
    }
  });
}

}  // namespace spccl::sparse
