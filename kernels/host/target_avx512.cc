#include "kernels/host/target_includes.h"

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((                                                                         \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,fma,bmi,bmi2,lzcnt,popcnt"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,fma,bmi,bmi2,lzcnt,popcnt")
#endif

#include "kernels/host/simd_avx512-inl.h"
#include "kernels/host/table-inl.h"

namespace spccl::host {

constinit const KernelTable kAvx512Table = MakeTable<Avx512<false>>("avx512");

}  // namespace spccl::host

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
