#include "daemon/metrics/telemetry.h"

#include <gtest/gtest.h>

namespace spccl::daemon::metrics {
namespace {

constexpr OpTimes kTimes{.first_arrival_ns = 1'000'000,
                         .last_arrival_ns = 3'000'000,
                         .began_ns = 3'500'000,
                         .ended_ns = 23'500'000};

const OpTotals& Of(const Telemetry& telemetry, OpKind kind, DType dtype) {
  return telemetry.ops[static_cast<size_t>(kind)][static_cast<size_t>(dtype)];
}

uint64_t Count(const Histogram& histogram) {
  uint64_t count = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) count += histogram.count(i);
  return count;
}

TEST(TelemetryTest, AnOperationWithFramesCountsEverywhere) {
  Telemetry telemetry;
  runtime::OpResult result;
  result.stats.dense_bytes = 4000;
  result.stats.wire_bytes = 1000;
  result.stats.sends_by_link = {1, 2};
  result.stats.wire_bytes_by_link = {300, 700};
  result.stats.input_nnz = 25;
  result.stats.input_elements = 1000;
  result.stats.encode_ns = 2'000'000;
  result.stats.room_wait_ns = 50'000;
  result.stats.encoded[static_cast<size_t>(Format::kCoo)] = {.dense_bytes = 4000, .ns = 7};
  const OpDesc op{.kind = OpKind::kReduceScatter, .dtype = DType::kBfloat16, .count = 10};
  telemetry.AddOperation(op, kTimes, result, 500);
  telemetry.AddOperation(op, kTimes, result, 500);

  const OpTotals& totals = Of(telemetry, OpKind::kReduceScatter, DType::kBfloat16);
  EXPECT_EQ(totals.ok, 2);
  EXPECT_EQ(totals.failed, 0);
  EXPECT_EQ(totals.payload_bytes, 1000);
  EXPECT_EQ(totals.dense_bytes, 8000);
  EXPECT_EQ(totals.wire_bytes, 2000);
  EXPECT_EQ(Of(telemetry, OpKind::kReduceScatter, DType::kFloat32).ok, 0);
  EXPECT_EQ(telemetry.sends_by_link[1], 4);
  EXPECT_EQ(telemetry.wire_bytes_by_link[1], 1400);
  EXPECT_EQ(telemetry.encoded[static_cast<size_t>(Format::kCoo)].dense_bytes, 8000);
  EXPECT_NEAR(telemetry.input_density.sum(), 0.05, 1e-12);
  EXPECT_EQ(Count(telemetry.result_density), 0);  // nothing was counted there
  EXPECT_NEAR(telemetry.durations[static_cast<size_t>(OpKind::kReduceScatter)].sum(), 0.04, 1e-12);
  EXPECT_NEAR(telemetry.waits[static_cast<size_t>(Cause::kRanks)].sum(), 0.004, 1e-12);
  EXPECT_NEAR(telemetry.waits[static_cast<size_t>(Cause::kTurn)].sum(), 0.001, 1e-12);
  EXPECT_NEAR(telemetry.phases[0].sum(), 0.004, 1e-12);
  EXPECT_EQ(Count(telemetry.phases[4]), 2);
}

TEST(TelemetryTest, WhatWentOverTheHostCountsWithoutFrames) {
  Telemetry telemetry;
  runtime::OpResult result;
  result.stats.host_path_bytes = 1 << 20;
  telemetry.AddOperation({}, kTimes, result, 64);
  telemetry.AddOperation({}, kTimes, result, 64);
  EXPECT_EQ(telemetry.gpu_host_path_bytes, 2 << 20);
}

TEST(TelemetryTest, WithoutFramesThereAreNoPhases) {
  Telemetry telemetry;
  telemetry.AddOperation({}, kTimes, {}, 64);
  EXPECT_EQ(Of(telemetry, OpKind::kAllReduce, DType::kFloat32).ok, 1);
  for (const Histogram& phase : telemetry.phases) EXPECT_EQ(Count(phase), 0);
  EXPECT_EQ(Count(telemetry.input_density), 0);
}

TEST(TelemetryTest, AFailureCountsByItsCodeAndMovesNothing) {
  Telemetry telemetry;
  runtime::OpResult result;
  result.status = absl::AbortedError("x");
  telemetry.AddOperation({}, kTimes, result, 1 << 20);
  const OpTotals& totals = Of(telemetry, OpKind::kAllReduce, DType::kFloat32);
  EXPECT_EQ(totals.failed, 1);
  EXPECT_EQ(totals.ok, 0);
  EXPECT_EQ(totals.payload_bytes, 0);
  const auto aborted = static_cast<size_t>(absl::StatusCode::kAborted);
  EXPECT_EQ(telemetry.op_errors[aborted], 1);
  telemetry.AddCommFailure(absl::AbortedError("y"), 3);
  EXPECT_EQ(telemetry.op_errors[aborted], 4);
  EXPECT_EQ(telemetry.comm_failures[aborted], 1);
}

}  // namespace
}  // namespace spccl::daemon::metrics
