#include "kernels/host/kernel_table.h"
#include "kernels/host/simd_plain-inl.h"
#include "kernels/host/table-inl.h"

namespace spccl::host {

constinit const KernelTable kPlainTable = MakeTable<Plain>("plain");

}  // namespace spccl::host
