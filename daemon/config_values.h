// How a text becomes a value of the configuration, and the other way round. Pure. Internal to the
// configuration and the settings store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spccl::daemon {

// False (and *out unchanged): not a whole number in this range.
bool ParseInteger(std::string_view text, uint64_t least, uint64_t most, uint64_t* out);
// 4096, 64K, 64KiB, 1TiB: powers of 1,024; the other way round as TOML. `least`: of the number
// before the unit.
bool ParseBytes(std::string_view text, uint64_t least, uint64_t* out);
std::string ShowBytes(uint64_t bytes);
// From 1ms to a year.
bool ParseDuration(std::string_view text, int64_t* out);

// A sparsity in [0, 1], or "auto", as a threshold is; the other way round as TOML.
bool ParseThreshold(std::string_view text, double* threshold);
std::string ShowThreshold(double value);
std::string ShowNumber(double value);

}  // namespace spccl::daemon
