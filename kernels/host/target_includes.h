// Every header that the -inl.h files need. A target's source includes this one before it opens its
// target region, so that nothing of the standard library is compiled for that instruction set.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/dtype.h"
#include "kernels/float16.h"
#include "kernels/format.h"
#include "kernels/host/kernel_table.h"
#include "kernels/host/shuffle_tables.h"
#include "kernels/lossy_layout.h"
#include "kernels/redop.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
