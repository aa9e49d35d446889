// Which instruction set the loops run with.
#pragma once

#include "kernels/host/kernel_table.h"

namespace spccl::host {

// The table in use: the best that the processor has, unless ForceTarget() chose another.
const KernelTable& CurrentTable();

}  // namespace spccl::host
