// What the daemon makes of GPUs that it cannot open. Of those that it opens: gpu_memory_test.cc.
#include "daemon/gpu_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GpuFactsTest : public ::testing::Test {
 protected:
  GpuFacts Of(const absl::Status& refusal, bool driver_named = false) {
    return LookAtRefusal(refusal, driver_named, folder_.path());
  }

  const spccl::testing::TempFolder folder_;
};

TEST_F(GpuFactsTest, WithoutADriverThereIsNothingToSeeTo) {
  const GpuFacts facts = Of(absl::NotFoundError("there is no CUDA driver"));
  EXPECT_EQ(facts.use, GpusUsed::kNone);
  EXPECT_EQ(facts.unused, "there is no CUDA driver");
  EXPECT_EQ(facts.advice, "");
}

TEST_F(GpuFactsTest, WhatIsThereAndCannotBeUsedHasItsOwnAdvice) {
  const std::pair<absl::Status, const char*> refusals[] = {
      {absl::FailedPreconditionError("no kernels"), "spccl-device"},
      {absl::UnimplementedError("too old"), "install driver 580"},
      {absl::UnavailableError("it fails"), "dmesg"},
      {absl::InternalError("it fails"), "dmesg"}};
  for (const auto& [refusal, advice] : refusals) {
    for (const bool named : {false, true}) {
      const GpuFacts facts = Of(refusal, named);
      EXPECT_EQ(facts.use, GpusUsed::kUnusable) << refusal;
      EXPECT_EQ(facts.unused, refusal.message());
      EXPECT_THAT(facts.advice, HasSubstr(advice)) << refusal;
    }
  }
}

TEST_F(GpuFactsTest, ADriverThatIsNamedShouldBeThere) {
  const GpuFacts facts = Of(absl::NotFoundError("there is no CUDA driver"), /*driver_named=*/true);
  EXPECT_EQ(facts.use, GpusUsed::kUnusable);
  EXPECT_THAT(facts.advice, HasSubstr("gpu.driver"));
}

// Those that the unit hides, or for which no library is installed.
TEST_F(GpuFactsTest, GpusThatTheKernelListsAreThere) {
  const absl::Status refusal = absl::NotFoundError("there is no CUDA driver");
  const std::string list = folder_.path() + "/driver/nvidia/gpus";
  std::filesystem::create_directories(list);
  EXPECT_EQ(Of(refusal).use, GpusUsed::kNone);  // the kernel's driver without GPUs
  std::filesystem::create_directory(list + "/0000:01:00.0");
  const GpuFacts facts = Of(refusal);
  EXPECT_EQ(facts.use, GpusUsed::kUnusable);
  EXPECT_THAT(facts.unused, AllOf(StartsWith("there is no CUDA driver"), HasSubstr(list)));
  EXPECT_THAT(facts.advice, AllOf(HasSubstr("libcuda1"), HasSubstr("gpu.conf")));
}

}  // namespace
}  // namespace spccl::daemon
