// Ranks that call different operations all get an error that tells both.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"

namespace spccl::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Call {
  bool broadcast = false;
  size_t count = 100;
  spcclDataType_t dtype = spcclFloat32;
  spcclRedOp_t op = spcclSum;
  int root = 0;
};

struct Disagreement {
  std::string name;
  Call first, second;                     // of rank 0 and of all others
  std::string first_value, second_value;  // what each side's text must hold
};

spcclResult_t Do(const Call& call, spcclComm_t comm) {
  std::vector<double> send(1000, 1.0), recv(1000);
  if (call.broadcast) {
    return spcclBroadcast(send.data(), recv.data(), call.count, call.dtype, call.root, comm,
                          nullptr);
  }
  return spcclAllReduce(send.data(), recv.data(), call.count, call.dtype, call.op, comm, nullptr);
}

TEST(DisagreementTest, EveryRankGetsBothValues) {
  const std::vector<Disagreement> cases = {
      {"operation", {}, {.broadcast = true}, "all_reduce", "broadcast"},
      {"count", {}, {.count = 101}, "count=100", "count=101"},
      {"dtype", {}, {.dtype = spcclInt32}, "float32", "int32"},
      {"reduction", {}, {.op = spcclMax}, "sum", "max"},
      {"root", {.broadcast = true}, {.broadcast = true, .root = 1}, "root=0", "root=1"},
  };
  const auto daemon = StartServing();
  for (const Disagreement& one : cases) {
    SCOPED_TRACE(one.name);
    FaultJob job(*daemon, 3, [&one](RankContext& context) {
      if (Do(one.first, context.comm) != spcclSuccess) return 1;  // they agree at first
      ReportResult(context, Do(context.rank == 0 ? one.first : one.second, context.comm));
      return 0;
    });
    for (const ProcessEnd& end : job.processes().Wait(kPatienceMs)) {
      EXPECT_TRUE(end.exited && end.exit_code == 0) << end.output;
      const Told told = ParseResult(end.output);
      EXPECT_EQ(told.result, spcclInvalidUsage) << end.output;
      EXPECT_THAT(told.text, AllOf(HasSubstr(one.first_value), HasSubstr(one.second_value)));
    }
  }
}

}  // namespace
}  // namespace spccl::testing
