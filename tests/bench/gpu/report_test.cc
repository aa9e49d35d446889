#include "bench/gpu/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace spccl::gpu_bench {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A row of float32 at 99% zeros whose copy runs at 3 TB/s and that takes `fraction` of the floor.
Row RowOf(const std::string& operation, const std::string& format, double fraction) {
  Row row = {.operation = operation,
             .format = format,
             .dtype = "float32",
             .sparsity = 0.99,
             .bytes = kGiB,
             .frame_bytes = kGiB / 32 + kGiB / 100};
  row.moved_bytes = MovedBytes(operation, kGiB, 4, 0.01, row.frame_bytes, row.frame_bytes);
  row.copy_seconds = 2.0 * kGiB / 3e12;
  row.seconds = static_cast<double>(row.moved_bytes) / 3e12 / fraction;
  row.cub_seconds = 2 * row.seconds;
  row.cusparse_seconds = 3 * row.seconds;
  return row;
}

std::vector<Row> GoodRows() {
  std::vector<Row> rows;
  for (const char* const operation : {"encode", "decode", "reduce-into", "fused"}) {
    rows.push_back(RowOf(operation, "pici", 0.9));
    if (std::string(operation) != "fused") rows.push_back(RowOf(operation, "pici-column", 0.5));
  }
  return rows;
}

// The microseconds of the design's table, over 3.0 TB/s.
TEST(FloorTest, IsWhatTheDesignSays) {
  const auto microseconds = [](uint64_t bytes) { return static_cast<double>(bytes) / 3e6; };
  for (const auto& [density, encode, reduce] :
       {std::tuple(0.01, 373, 70), std::tuple(0.05, 387, 270), std::tuple(0.1, 405, 455),
        std::tuple(0.5, 548, 903)}) {
    const auto frame = static_cast<uint64_t>(kGiB / 32.0 + kGiB * density);
    EXPECT_NEAR(microseconds(MovedBytes("encode", kGiB, 4, density, frame, 0)), encode, 2);
    EXPECT_NEAR(microseconds(MovedBytes("decode", kGiB, 4, density, frame, 0)), encode, 2);
    EXPECT_NEAR(microseconds(MovedBytes("reduce-into", kGiB, 4, density, frame, 0)), reduce, 5);
  }
  // A hop's frame holds what either has: 2d - d^2 at independent places.
  const auto in = static_cast<uint64_t>(kGiB / 32.0 + kGiB * 0.1);
  const auto out = static_cast<uint64_t>(kGiB / 32.0 + kGiB * 0.19);
  EXPECT_NEAR(microseconds(MovedBytes("fused", kGiB, 4, 0.1, in, out)), 484, 5);
}

TEST(RowTest, ComputesWhatItShows) {
  const Row row = RowOf("encode", "pici", 0.9);
  EXPECT_NEAR(FloorFraction(row), 0.9, 1e-9);
  EXPECT_NEAR(RivalRatio(row), 2, 1e-9);
  EXPECT_NEAR(GbpsOf(row), kGiB / row.seconds / 1e9, 1e-6);
  Row alone = row;
  alone.cub_seconds = 0;
  EXPECT_NEAR(RivalRatio(alone), 3, 1e-9) << "only cuSPARSE was measured";
  alone.cusparse_seconds = 0;
  EXPECT_EQ(RivalRatio(alone), 0) << "no rival was measured";
  EXPECT_EQ(FloorFraction({}), 0);
}

constexpr char kH100[] = "NVIDIA H100 80GB HBM3";
constexpr char kA100[] = "NVIDIA A100-SXM4-40GB";

TEST(JudgeTest, PassesWhatIsGood) {
  std::ostringstream out;
  EXPECT_TRUE(PrintVerdicts(Judge(GoodRows()), kH100, out)) << out.str();
  EXPECT_THAT(out.str(), testing::HasSubstr("\nPASS: 0 of 11 targets missed, 0 not measured\n"));
  EXPECT_THAT(out.str(), testing::Not(testing::HasSubstr("skipped")));
}

TEST(JudgeTest, FailsWhatIsSlowOrMissing) {
  std::ostringstream out;
  std::vector<Row> rows = GoodRows();
  rows[0].seconds *= 1.2;  // 0.75 of the floor where 0.80 is wanted
  EXPECT_FALSE(PrintVerdicts(Judge(rows), kH100, out));
  EXPECT_THAT(out.str(), testing::HasSubstr("MISSED encode: of the floor"));
  EXPECT_THAT(out.str(), testing::HasSubstr("\nFAIL: 1 of 11 targets missed, 0 not measured\n"));
  rows = GoodRows();
  rows.back().cub_seconds = rows.back().seconds * 1.4;
  EXPECT_FALSE(PrintVerdicts(Judge(rows), kH100, out));
  rows = GoodRows();
  rows[1].seconds = rows[0].seconds * 1.2;  // the column form is nearly as fast
  EXPECT_FALSE(PrintVerdicts(Judge(rows), kH100, out));
  EXPECT_FALSE(PrintVerdicts(Judge({}), kH100, out)) << "nothing was measured";
  EXPECT_FALSE(PrintVerdicts({}, kH100, out));
}

TEST(JudgeTest, TellsButDoesNotFailWhatAnotherCardMisses) {
  std::ostringstream out;
  std::vector<Row> rows = GoodRows();
  rows[0].seconds *= 1.2;
  EXPECT_TRUE(PrintVerdicts(Judge(rows), kA100, out));
  EXPECT_THAT(out.str(), testing::HasSubstr("below  encode: of the floor"));
  EXPECT_THAT(out.str(), testing::HasSubstr("\nskipped: targets of an H100, not judged on NVIDIA "
                                            "A100-SXM4-40GB\nPASS: all measured, below 1 of 11 "
                                            "targets of an H100, not judged on NVIDIA A100"));
}

TEST(JudgeTest, FailsOnEveryCardWhatWasNotMeasured) {
  std::ostringstream out;
  EXPECT_FALSE(PrintVerdicts(Judge({}), kA100, out));
  EXPECT_FALSE(PrintVerdicts({}, kA100, out));
  std::vector<Row> rows = GoodRows();
  rows[0].copy_seconds = 0;
  rows[0].cub_seconds = rows[0].cusparse_seconds = 0;
  EXPECT_FALSE(PrintVerdicts(Judge(rows), kA100, out));
  EXPECT_THAT(out.str(), testing::HasSubstr("MISSED encode: of the floor"));
  EXPECT_THAT(out.str(), testing::HasSubstr("\nFAIL: 2 of 11 targets missed, 2 not measured\n"));
}

TEST(JudgeTest, IsOfWholeH100sAlone) {
  for (const char* const name : {kH100, "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "H100"}) {
    EXPECT_TRUE(IsTargetCard(name)) << name;
  }
  for (const char* const name : {kA100, "NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA GH100", "",
                                 "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100-20C", "H1000"}) {
    EXPECT_FALSE(IsTargetCard(name)) << name;
  }
}

TEST(JudgeTest, LooksAtTheLargestSizeAlone) {
  std::vector<Row> rows = GoodRows();
  Row small = rows[0];
  small.bytes /= 4;  // and as slow as before
  rows.insert(rows.begin(), small);
  Row large = rows[0];
  large.bytes *= 4;
  large.sparsity = 0.5;  // time was up before the judged one
  rows.push_back(large);
  std::ostringstream out;
  EXPECT_TRUE(PrintVerdicts(Judge(rows), kH100, out)) << out.str();
}

TEST(MissingRivalsTest, CountsRowsWithoutCusparse) {
  std::vector<Row> rows = GoodRows();
  EXPECT_EQ(MissingRivals(rows), "");
  rows[2].cusparse_seconds = 0;
  EXPECT_EQ(MissingRivals(rows), "cuSPARSE in 1 of 7 rows");
}

TEST(PrintTest, TellsEveryRow) {
  std::ostringstream table, json;
  PrintTable(GoodRows(), table);
  EXPECT_THAT(table.str(), testing::HasSubstr("pici-column"));
  EXPECT_THAT(table.str(), testing::HasSubstr("99.0%"));
  PrintJson("A card", GoodRows()[0], json);
  EXPECT_THAT(json.str(), testing::StartsWith("{\"device\":\"A card\",\"operation\":\"encode\","));
  EXPECT_THAT(json.str(), testing::EndsWith("\"rival_ratio\":2.0000}\n"));
}

TEST(MedianTest, IsTheMiddleOne) {
  EXPECT_EQ(MedianOf({}), 0);
  EXPECT_EQ(MedianOf({3}), 3);
  EXPECT_EQ(MedianOf({9, 1, 5}), 5);
  EXPECT_EQ(MedianOf({4, 3, 2, 1}), 2);
}

}  // namespace
}  // namespace spccl::gpu_bench
