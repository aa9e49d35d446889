// How a text becomes a value of the configuration, and the other way round. Pure. Internal to the
// configuration and the settings store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spccl::daemon {

// As TOML, for ParseBytes().
std::string ShowBytes(uint64_t bytes);
// From 1ms to a year.
bool ParseDuration(std::string_view text, int64_t* out);

// A sparsity in [0, 1], or "auto", as a threshold is; the other way round as TOML.
bool ParseThreshold(std::string_view text, double* threshold);
std::string ShowThreshold(double value);
std::string ShowNumber(double value);

}  // namespace spccl::daemon
