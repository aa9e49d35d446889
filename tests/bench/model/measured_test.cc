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
      R"({"operation":"encode","format":"pici","dtype":"float32","sparsity":0.99,"gbps":2000}
{"operation":"encode","format":"pici","dtype":"float32","sparsity":0.5,"gbps":1000,"bytes":1}
{"operation":"encode","format":"pici","dtype":"bfloat16","sparsity":0.99,"gbps":1}
{"operation":"reduce-into","format":"pici","dtype":"float32","sparsity":0.99,"gbps":8000}

{"operation":"decode","format":"coo","dtype":"float32","sparsity":0.9,"gbps":700,"bytes":1000000,"copy_seconds":1e-6}
{"operation":"decode","format":"gap","dtype":"float32","sparsity":0.9,"gbps":0}
{"device":"a GPU"}
)",
      DType::kFloat32, &rates);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, 4);
  EXPECT_NEAR(At(rates, Kernel::kEncode, 0.01), 1 / 2000e9, 1e-20);
  EXPECT_NEAR(At(rates, Kernel::kEncode, 0.5), 1 / 1000e9, 1e-20);
  EXPECT_NEAR(At(rates, Kernel::kCombine, 0.01), 1 / 8000e9, 1e-20);
  EXPECT_DOUBLE_EQ(rates.memory_rate, 2e12);
}

TEST(AddMeasuredTest, LastOfSeveralCounts) {
  KernelRates rates;
  const std::string line =
      R"({"operation":"decode","format":"pici","dtype":"float32","sparsity":0.9,)";
  ASSERT_TRUE(
      AddMeasured(line + "\"gbps\":1}\n" + line + "\"gbps\":2}", DType::kFloat32, &rates).ok());
  EXPECT_NEAR(At(rates, Kernel::kDecode, 0.1), 1 / 2e9, 1e-18);
}

TEST(AddMeasuredTest, SaysWhichLineIsWrong) {
  const std::string good =
      R"({"operation":"encode","format":"pici","dtype":"float32","sparsity":0.9,"gbps":1})";
  const auto complaint = [&](const std::string& line) {
    KernelRates rates;
    const auto taken = AddMeasured(good + "\n" + line, DType::kFloat32, &rates);
    EXPECT_FALSE(taken.ok()) << line;
    EXPECT_TRUE(rates.measured.empty());
    return std::string(taken.status().message());
  };
  EXPECT_THAT(complaint("no JSON"), HasSubstr("line 2"));
  EXPECT_THAT(complaint("[1]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(
      complaint(R"({"operation":"encode","format":"pici","dtype":"float32","sparsity":0.9})"),
      HasSubstr("gbps"));
  EXPECT_THAT(
      complaint(
          R"({"operation":"encode","format":"pici","dtype":"float32","sparsity":0.9,"gbps":"1"})"),
      HasSubstr("gbps"));
  EXPECT_THAT(
      complaint(
          R"({"operation":"encode","format":"pici","dtype":"float32","sparsity":2,"gbps":1})"),
      HasSubstr("sparsity"));
  EXPECT_THAT(
      complaint(
          R"({"operation":"encode","format":"qsgd4","dtype":"float32","sparsity":0,"gbps":1})"),
      HasSubstr("format"));
  EXPECT_THAT(complaint(R"({"operation":"encode","format":7,"dtype":"float32","gbps":1})"),
              HasSubstr("format"));
}

}  // namespace
}  // namespace spccl::bench::model
