// Whole numbers and counts of bytes, as people write them in files and on command lines. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace spccl {

// False (and *out unchanged): not a whole number in this range.
bool ParseInteger(std::string_view text, uint64_t least, uint64_t most, uint64_t* out);
// 4096, 64K, 64KiB, 1TiB: powers of 1,024, of at most 2^63 - 1 bytes. `least`: of the number before
// the unit.
bool ParseBytes(std::string_view text, uint64_t least, uint64_t* out);

}  // namespace spccl
