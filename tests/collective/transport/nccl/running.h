// An operation that is under way while something fails.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/collective/transport/nccl/cluster.h"

namespace spccl::transport::nccl {

inline constexpr int64_t kSoonNs = 300'000'000;
inline constexpr int64_t kNeverNs = 600'000'000'000;

inline void CloseSoon(WorldOptions* options) {
  options->close_deadline_ns = kSoonNs;
}

inline std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

// An operation of ranks 0 to n on all nodes, that has begun.
struct Running {
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<std::unique_ptr<OperationTransport>> transports;

  explicit Running(Cluster* cluster) : communicators(cluster->OpenAll(1)) {
    for (const auto& communicator : communicators) {
      auto opened = communicator->OpenOperation(Operation(1));
      EXPECT_TRUE(opened.ok()) << opened.status();
      sinks.push_back(std::make_unique<RecordingSink>());
      transports.push_back(*std::move(opened));
      transports.back()->Start(sinks.back().get());
    }
  }
  void ExpectLost(uint32_t rank, const std::string& why) {
    for (const auto& sink : sinks) {
      const auto [lost, reason] = sink->AwaitFailure();
      EXPECT_EQ(lost, rank) << reason;
      EXPECT_THAT(Text(reason), testing::HasSubstr(why));
      EXPECT_THAT(Text(reason), testing::HasSubstr("lost GPU rank " + std::to_string(rank)));
    }
  }
};

}  // namespace spccl::transport::nccl
