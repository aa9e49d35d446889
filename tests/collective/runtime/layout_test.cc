#include "collective/runtime/layout.h"

#include <vector>

#include "gtest/gtest.h"

namespace spccl::runtime {
namespace {

TEST(LayoutTest, SlicesCoverTheBuffersOnce) {
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (const uint64_t count : {0U, 1U, 31U, 32U, 33U, 100U, 1000U}) {
      const OpDesc op{.kind = static_cast<OpKind>(kind), .count = count};
      const uint32_t chunks = op.kind == OpKind::kBroadcast ? 1 : 3;
      const Layout layout(op, chunks, 32);
      const bool own_input = op.kind == OpKind::kAllGather;
      const bool own_output = op.kind == OpKind::kReduceScatter || op.kind == OpKind::kScatter;
      for (uint32_t rank = 0; rank < 3; ++rank) {
        std::vector<int> input(SendElements(op, 3)), output(RecvElements(op, 3));
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
          for (uint64_t lane = 0; lane < layout.lanes(); ++lane) {
            for (uint64_t i = 0; i < layout.SliceElements(chunk, lane); ++i) {
              if (!own_input || chunk == rank) ++input.at(layout.InputOffset(chunk, lane) + i);
              if (!own_output || chunk == rank) ++output.at(layout.OutputOffset(chunk, lane) + i);
            }
          }
        }
        EXPECT_EQ(input, std::vector<int>(input.size(), 1)) << NameOf(op.kind) << " " << count;
        EXPECT_EQ(output, std::vector<int>(output.size(), 1)) << NameOf(op.kind) << " " << count;
      }
      EXPECT_GE(layout.lanes(), 1U);
    }
  }
}

}  // namespace
}  // namespace spccl::runtime
