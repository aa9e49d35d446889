// A place in a kernel's source, for diagnoses. std::source_location is not used: clang-tidy 14
// cannot read libstdc++ 12's.
#pragma once

#include <cstdint>

namespace spccl::simt {

struct Site {
  const char* file = "";
  uint32_t line = 0;
  // As a default argument: the caller's place.
  static constexpr Site Here(const char* file = __builtin_FILE(),
                             uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
  // Every use of one line is one string constant or an equal one; the line tells most pairs apart.
  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || __builtin_strcmp(file, other.file) == 0);
  }
};

}  // namespace spccl::simt
