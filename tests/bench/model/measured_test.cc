#include "bench/model/measured.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::bench::model {
namespace {

using ::testing::HasSubstr;

double At(const KernelRates& rates, Kernel kernel, double density) {
  return rates.SecondsPerByte(kernel, Format::kPici, 4, density);
}

TEST(AddMeasuredTest, TakesWhatAGpuBenchmarkPrints) {
  KernelRates rates;
  const auto taken = AddMeasured(
      R"({"kernel":"encode","format":"pici","dtype":"float32","sparsity":0.99,"gbps":2000}
{"kernel":"encode","format":"pici","dtype":"float32","sparsity":0.5,"gbps":1000,"bytes":1}
{"kernel":"encode","format":"pici","dtype":"bfloat16","sparsity":0.99,"gbps":1}
{"kernel":"reduce_into","format":"pici","dtype":"float32","sparsity":0.99,"gbps":8000}

{"kernel":"copy","dtype":"float32","gbps":1500}
{"device":"a GPU"}
)",
      DType::kFloat32, &rates);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, 4);
  EXPECT_NEAR(At(rates, Kernel::kEncode, 0.01), 1 / 2000e9, 1e-20);
  EXPECT_NEAR(At(rates, Kernel::kEncode, 0.5), 1 / 1000e9, 1e-20);
  EXPECT_NEAR(At(rates, Kernel::kCombine, 0.01), 1 / 8000e9, 1e-20);
  EXPECT_DOUBLE_EQ(rates.memory_rate, 3000e9);
}

TEST(AddMeasuredTest, LastOfSeveralCounts) {
  KernelRates rates;
  const std::string line =
      R"({"kernel":"decode","format":"pici","dtype":"float32","sparsity":0.9,)";
  ASSERT_TRUE(
      AddMeasured(line + "\"gbps\":1}\n" + line + "\"gbps\":2}", DType::kFloat32, &rates).ok());
  EXPECT_NEAR(At(rates, Kernel::kDecode, 0.1), 1 / 2e9, 1e-18);
}

TEST(AddMeasuredTest, SaysWhichLineIsWrong) {
  const std::string good =
      R"({"kernel":"encode","format":"pici","dtype":"float32","sparsity":0.9,"gbps":1})";
  const auto complaint = [&](const std::string& line) {
    KernelRates rates;
    const auto taken = AddMeasured(good + "\n" + line, DType::kFloat32, &rates);
    EXPECT_FALSE(taken.ok()) << line;
    EXPECT_TRUE(rates.measured.empty());
    return std::string(taken.status().message());
  };
  EXPECT_THAT(complaint("no JSON"), HasSubstr("line 2"));
  EXPECT_THAT(complaint("[1]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(complaint(R"({"kernel":"encode","format":"pici","dtype":"float32","sparsity":0.9})"),
              HasSubstr("gbps"));
  EXPECT_THAT(
      complaint(
          R"({"kernel":"encode","format":"pici","dtype":"float32","sparsity":0.9,"gbps":"1"})"),
      HasSubstr("gbps"));
  EXPECT_THAT(
      complaint(R"({"kernel":"encode","format":"pici","dtype":"float32","sparsity":2,"gbps":1})"),
      HasSubstr("sparsity"));
  EXPECT_THAT(
      complaint(R"({"kernel":"encode","format":"qsgd4","dtype":"float32","sparsity":0,"gbps":1})"),
      HasSubstr("format"));
  EXPECT_THAT(complaint(R"({"kernel":"encode","format":7,"dtype":"float32","gbps":1})"),
              HasSubstr("format"));
}

}  // namespace
}  // namespace spccl::bench::model
