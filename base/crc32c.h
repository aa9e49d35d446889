// CRC-32C (Castagnoli, reflected, polynomial 0x82F63B78), as iSCSI and the frame header use it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spccl {

// The checksum of `size_bytes` bytes at `data`. No allocation, no system call.
uint32_t Crc32c(const void* data, size_t size_bytes);

}  // namespace spccl
