#include "kernels/host/target_includes.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c,fma,bmi,bmi2,lzcnt,popcnt"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c,fma,bmi,bmi2,lzcnt,popcnt")
#endif

#include "kernels/host/simd_avx2-inl.h"
#include "kernels/host/table-inl.h"

namespace spccl::host {

constinit const KernelTable kAvx2Table = MakeTable<Avx2>("avx2");

}  // namespace spccl::host

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
