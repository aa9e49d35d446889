#include "client/codec.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace spccl::client {
namespace {

TEST(CodecTest, WishesAreTheDaemonsTexts) {
  const spcclCodecOptions absolute{.bound = 0.001, .relative = 0, .seed = 0};
  const spcclCodecOptions relative{.bound = 0.1, .relative = 1, .seed = 0};
  const spcclCodecOptions seeded{.bound = 0, .relative = 0, .seed = ~0ULL};
  const struct {
    spcclCodec_t codec;
    const spcclCodecOptions* options;
    const char *name, *lossy;
  } kRows[] = {{spcclCodecAuto, nullptr, "auto", "off"},
               {spcclCodecPiciColumn, &absolute, "pici-column", "off"},
               {spcclCodecGap, nullptr, "gap", "off"},
               {spcclCodecErrorBound, &absolute, "", "errorbound:absolute=0.001"},
               {spcclCodecErrorBound, &relative, "", "errorbound:relative=0.1"},
               {spcclCodecQsgd2, nullptr, "", "qsgd2:seed=0"},
               {spcclCodecQsgd8, &seeded, "", "qsgd8:seed=18446744073709551615"}};
  for (const auto& row : kRows) {
    const auto wish = WishOf(row.codec, row.options);
    ASSERT_TRUE(wish.ok()) << wish.status();
    EXPECT_EQ(wish->codec, row.name);
    EXPECT_EQ(wish->lossy, row.lossy);
    EXPECT_EQ(wish->is_lossy, row.codec >= spcclCodecErrorBound);
  }
}

TEST(CodecTest, RefusesWhatIsNoCodecOrNoBound) {
  EXPECT_TRUE(absl::IsInvalidArgument(WishOf(spcclNumCodecs, nullptr).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(WishOf(static_cast<uint32_t>(-1), nullptr).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(WishOf(spcclCodecErrorBound, nullptr).status()));
  for (const double bound : {0.0, -1e-3, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const spcclCodecOptions options{.bound = bound, .relative = 0, .seed = 0};
    EXPECT_TRUE(absl::IsInvalidArgument(WishOf(spcclCodecErrorBound, &options).status())) << bound;
  }
  const spcclCodecOptions whole{.bound = 1, .relative = 1, .seed = 0};
  EXPECT_EQ(WishOf(spcclCodecErrorBound, &whole).status().message(),
            "options->bound is 1, expected a positive, finite number below 1");
}

TEST(CodecTest, LossyCodecsCarryFloatsAndNoProducts) {
  const auto check = [](OpCode op, spcclDataType_t dtype, spcclRedOp_t redop) {
    return CheckLossyCarries(
        {.op = op, .send = nullptr, .recv = nullptr, .count = 1, .dtype = dtype, .redop = redop});
  };
  EXPECT_TRUE(check(OpCode::kAllReduce, spcclFloat32, spcclSum).ok());
  EXPECT_TRUE(check(OpCode::kReduceScatter, spcclFloat64, spcclMax).ok());
  EXPECT_TRUE(check(OpCode::kAllGather, spcclFloat32, spcclProd).ok()) << "reduces nothing";
  EXPECT_TRUE(absl::IsFailedPrecondition(check(OpCode::kAllReduce, spcclFloat32, spcclProd)));
  for (const spcclDataType_t dtype : {spcclInt32, spcclFloat16, spcclBfloat16, spcclUint64}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(check(OpCode::kBroadcast, dtype, spcclSum)));
  }
}

}  // namespace
}  // namespace spccl::client
