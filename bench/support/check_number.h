// Checks of options that are numbers, in words: CLI11's own name the largest double, in 300 digits.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

namespace spccl::bench {

// Infinities and NaN are no numbers here.
inline std::string CheckNumber(const std::string& text, bool zero_too) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const bool whole = !text.empty() && *end == '\0' && std::isfinite(number);
  if (whole && (number > 0 || (zero_too && number == 0))) return "";
  return "found \"" + text + "\", expected a number " + (zero_too ? "from 0 on" : "above 0");
}

inline CLI::Validator AboveZero() {
  return {[](std::string& text) { return CheckNumber(text, false); }, "POSITIVE"};
}

inline CLI::Validator FromZeroOn() {
  return {[](std::string& text) { return CheckNumber(text, true); }, "NONNEGATIVE"};
}

}  // namespace spccl::bench
