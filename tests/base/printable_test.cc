#include "base/printable.h"

#include <gtest/gtest.h>

namespace spccl {
namespace {

TEST(PrintableTest, NothingSteersATerminal) {
  EXPECT_EQ(Printable("a\x1b[31mb\n\x7f"), "a?[31mb??");
  EXPECT_EQ(Printable("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(Printable("x\xc2\x9b"
                      "2J"),
            "x?2J");
}

}  // namespace
}  // namespace spccl
