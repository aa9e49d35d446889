// Numbers of things, in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/view.h"

namespace spccl {

// "1 job", "2 jobs".
inline std::string Counted(uint64_t count, std::string_view thing) {
  return absl::StrCat(count, " ", View(thing), count == 1 ? "" : "s");
}

}  // namespace spccl
