#include "collective/runtime/make_task.h"

#include <vector>

#include "gtest/gtest.h"

namespace spccl::runtime {
namespace {

absl::Status Make(const OpDesc& op, size_t ranks, std::vector<uint32_t> nodes = {}) {
  const std::vector<RankBuffers> buffers(ranks);
  return MakeTask(op, buffers, {}, {.node_of_rank = nodes}, [](const OpResult&) {}).status();
}

TEST(MakeTaskTest, RefusesWhatCannotRun) {
  EXPECT_TRUE(Make({}, 2).ok());
  EXPECT_EQ(Make({}, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Make({}, 100'000).code(), absl::StatusCode::kInvalidArgument);
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kScatter}) {
    EXPECT_EQ(Make({.kind = kind, .root = 2}, 2).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(Make({.kind = OpKind::kAllReduce, .root = 2}, 2).ok());
  EXPECT_EQ(Make({.count = UINT64_MAX / 4}, 2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Make({}, 2, {0}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakeTaskTest, AutoIsTheLocalPlan) {
  policy::Settings settings;
  EXPECT_EQ(Resolve(settings, OpKind::kAllReduce), policy::Algorithm::kLocal);
  settings.algorithm = policy::Algorithm::kRing;
  EXPECT_EQ(Resolve(settings, OpKind::kAllReduce), policy::Algorithm::kRing);
  EXPECT_EQ(Resolve(settings, OpKind::kScatter), policy::Algorithm::kLocal);
}

}  // namespace
}  // namespace spccl::runtime
