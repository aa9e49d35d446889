// The library's string views as Abseil's, which is a class of its own in the packaged builds.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace spccl {

inline absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace spccl
