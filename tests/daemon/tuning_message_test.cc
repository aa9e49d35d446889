#include "daemon/tuning_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using policy::Algorithm;
using policy::Pick;
using testing::IsOk;

policy::Tuning WithTable() {
  auto table = std::make_shared<policy::PlanTable>();
  table->grids[static_cast<size_t>(OpKind::kAllReduce)] = {
      .first_size = 32,
      .densities = 2,
      .picks = {{.algorithm = Algorithm::kSplit},
                {.algorithm = Algorithm::kRing, .slice_bytes = 65536},
                {},
                {.algorithm = Algorithm::kSplit}}};
  table->grids[static_cast<size_t>(OpKind::kBroadcast)] = {
      .first_size = 40, .densities = 1, .picks = {{.algorithm = Algorithm::kTree}}};
  policy::Tuning tuning;
  tuning.slice_bytes = 1 << 20;
  tuning.densities[2] = 0.25;
  tuning.table = table;
  return tuning;
}

TEST(TuningMessageTest, ComesBack) {
  for (const policy::Tuning& tuning : {policy::Tuning{}, WithTable()}) {
    const auto back = FromMessage(ToMessage(tuning));
    ASSERT_THAT(back, IsOk());
    EXPECT_TRUE(*back == tuning);
  }
}

TEST(TuningMessageTest, ImpossibleTablesAreRefused) {
  const std::function<void(v1::Tuning&)> kDamages[] = {
      [](v1::Tuning& m) { m.mutable_grids(0)->set_operation("all_reduse"); },
      [](v1::Tuning& m) { *m.add_grids() = m.grids(0); },
      [](v1::Tuning& m) { m.mutable_grids(0)->set_densities(0); },
      [](v1::Tuning& m) { m.mutable_grids(0)->set_densities(3); },
      [](v1::Tuning& m) { m.mutable_grids(0)->set_densities(17); },
      [](v1::Tuning& m) { m.mutable_grids(0)->set_first_size(128); },
      [](v1::Tuning& m) { m.mutable_grids(0)->mutable_cells()->at(0) = '\x7f'; },
      [](v1::Tuning& m) { m.mutable_grids(0)->mutable_cells()->resize(10'000); },
      [](v1::Tuning& m) { m.set_picks(0, "local"); },
      [](v1::Tuning& m) { m.set_picks(0, "direct"); },  // has no plan for an all-reduce
      [](v1::Tuning& m) { m.set_picks(1, "ring/1"); },
  };
  for (const auto& damage : kDamages) {
    v1::Tuning message = ToMessage(WithTable());
    damage(message);
    EXPECT_TRUE(absl::IsInvalidArgument(FromMessage(message).status())) << message.DebugString();
  }
}

}  // namespace
}  // namespace spccl::daemon
