#include "base/printable.h"

#include <cstddef>

namespace spccl {

std::string Printable(std::string_view text) {
  std::string printable(text);
  for (size_t i = 0; i < printable.size(); ++i) {
    const auto byte = static_cast<unsigned char>(printable[i]);
    // C0, DEL, and C1, which UTF-8 writes as 0xC2 and 0x80 to 0x9F.
    const bool c1 = byte == 0xC2 && i + 1 < printable.size() &&
                    static_cast<unsigned char>(printable[i + 1]) < 0xA0;
    if (byte < 0x20 || byte == 0x7F || c1) printable[i] = '?';
    if (c1) printable.erase(i + 1, 1);
  }
  return printable;
}

}  // namespace spccl
