// Whether bytes are text.
#pragma once

#include <cstddef>
#include <string_view>

namespace spccl {

// The bytes of the UTF-8 sequence that `text`, which is not empty, starts with; 0 where it starts
// with none.
size_t Utf8Length(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace spccl
