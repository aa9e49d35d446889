#include "kernels/host/simd_neon-inl.h"
#include "kernels/host/table-inl.h"
#include "kernels/host/target_includes.h"

namespace spccl::host {

constinit const KernelTable kNeonTable = MakeTable<Neon>("neon");

}  // namespace spccl::host
