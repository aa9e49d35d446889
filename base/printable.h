// Text that others chose, for people's terminals.
#pragma once

#include <string>
#include <string_view>

namespace spccl {

// The text with each control character, as ASCII and UTF-8 have them, replaced by "?": nothing in
// it steers a terminal or begins another line.
std::string Printable(std::string_view text);

}  // namespace spccl
