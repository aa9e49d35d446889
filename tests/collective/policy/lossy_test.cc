#include "collective/policy/lossy.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace spccl::policy {
namespace {

std::string ComplaintOf(std::string_view text) {
  std::string complaint;
  EXPECT_FALSE(LossyFromText(text, &complaint).has_value()) << text;
  return complaint;
}

TEST(LossyTest, TextsComeBack) {
  const Lossy wishes[] = {{},
                          {.format = Format::kErrorBound, .bound = {0.1, false}},
                          {.format = Format::kErrorBound, .bound = {1e-300, true}},
                          {.format = Format::kQsgd2, .seed = 0},
                          {.format = Format::kQsgd4, .seed = ~uint64_t{0}},
                          {.format = Format::kQsgd8, .seed = 7}};
  for (const Lossy& wish : wishes) {
    std::string complaint;
    const auto back = LossyFromText(TextOf(wish), &complaint);
    ASSERT_TRUE(back.has_value()) << TextOf(wish) << ": " << complaint;
    EXPECT_EQ(*back, wish) << TextOf(wish);
  }
  EXPECT_EQ(TextOf(wishes[1]), "errorbound:absolute=0.1");
  std::string complaint;
  EXPECT_EQ(LossyFromText("qsgd4", &complaint), (Lossy{.format = Format::kQsgd4}));
}

TEST(LossyTest, SaysWhatIsWrong) {
  for (const char* bound :
       {"0", "-1", "nan", "-nan", "inf", "-inf", "1e999", "x", "", "1 ", "0x1"}) {
    const std::string complaint = ComplaintOf("errorbound:absolute=" + std::string(bound));
    EXPECT_EQ(complaint,
              "the bound is " + std::string(bound) + ", expected a positive, finite number");
  }
  EXPECT_EQ(ComplaintOf("errorbound:relative=1"),
            "the bound is 1, expected a positive, finite number below 1");
  EXPECT_EQ(ComplaintOf("errorbound"), "errorbound needs a bound: absolute=X or relative=X");
  EXPECT_EQ(ComplaintOf("qsgd2:seed=-1"), "the seed is -1, expected a whole number below 2^64");
  EXPECT_EQ(ComplaintOf("qsgd2:bound=1"), "found bound=1, expected seed=N");
  for (const char* name : {"", "pici", "qsgd3", "Off", "dense"}) {
    EXPECT_EQ(ComplaintOf(name),
              "found " + std::string(name) + ", expected off, errorbound, qsgd2, qsgd4 or qsgd8");
  }
}

TEST(LossyTest, EachOperationWithEachSeedDrawsAnew) {
  std::set<uint64_t> drawn;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t operation = 0; operation < 100; ++operation) {
      EXPECT_TRUE(drawn.insert(SeedOf(seed, operation)).second) << seed << ", " << operation;
    }
  }
}

TEST(LossyTest, AppliesOnlyWhereABoundCanBeHeld) {
  const Lossy bound{.format = Format::kErrorBound, .bound = {0.1, false}};
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int redop = 0; redop < kRedOpCount; ++redop) {
        const OpDesc op{.kind = static_cast<OpKind>(kind),
                        .dtype = static_cast<DType>(dtype),
                        .redop = static_cast<RedOp>(redop)};
        const bool carries = op.dtype == DType::kFloat32 || op.dtype == DType::kFloat64;
        const bool expected = carries && !(Reduces(op.kind) && op.redop == RedOp::kProd);
        EXPECT_EQ(WhyExact(op).empty(), expected);
        for (const Phase phase : {Phase::kReduceScatter, Phase::kAllGather}) {
          EXPECT_EQ(AppliesTo(bound, op, phase), expected);
          EXPECT_FALSE(AppliesTo(Lossy{}, op, phase));
          EXPECT_EQ(AppliesTo({.format = Format::kQsgd4}, op, phase),
                    expected && op.kind == OpKind::kAllReduce && phase == Phase::kAllGather);
        }
      }
    }
  }
}

}  // namespace
}  // namespace spccl::policy
