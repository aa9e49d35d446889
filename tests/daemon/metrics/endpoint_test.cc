#include "daemon/metrics/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/daemon/metrics/full_sample.h"
#include "tests/daemon/metrics/parse.h"

namespace spccl::daemon::metrics {
namespace {

constexpr int64_t kForEver = 1'000'000'000'000'000;

struct FakeDaemon {
  absl::Status core_status;
  Progress progress{.age_ns = 0, .healthy = true, .detail = ""};
  int asked = 0;

  Source source() {
    return {.version = "1.2.3",
            .codec_target = "AVX3",
            .core = [this]() -> absl::StatusOr<CoreSample> {
              ++asked;
              if (!core_status.ok()) return core_status;
              return *FullSample().core;
            },
            .progress = [this] { return progress; }};
  }
};

TEST(EndpointTest, MetricsAreATextForPrometheus) {
  FakeDaemon daemon;
  const auto endpoint = MakeEndpoint(daemon.source());
  const auto answer = endpoint("/metrics", {.answers = {{404, 2}}, .dropped = 3});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->content_type, "text/plain; version=0.0.4; charset=utf-8");
  const Parsed parsed = Parse(answer->body);
  EXPECT_EQ(parsed.Of("spccl_core_answers"), 1);
  EXPECT_EQ(parsed.Of("spccl_sessions"), 2);
  EXPECT_EQ(parsed.Of("spccl_metrics_requests_total{code=404}"), 2);
  EXPECT_EQ(parsed.Of("spccl_metrics_connections_dropped_total"), 3);
  EXPECT_GT(parsed.Of("process_threads"), 0);
}

TEST(EndpointTest, HoweverOftenSomebodyAsksTheCoreIsAskedNowAndThen) {
  FakeDaemon daemon;
  const auto rarely = MakeEndpoint(daemon.source(), kForEver);
  for (int i = 0; i < 100; ++i) rarely("/metrics", {});
  EXPECT_EQ(daemon.asked, 1);
  const auto always = MakeEndpoint(daemon.source(), 0);
  for (int i = 0; i < 100; ++i) always("/metrics", {});
  EXPECT_EQ(daemon.asked, 101);
}

TEST(EndpointTest, ACoreThatDoesNotAnswerLeavesWhatIsKnown) {
  FakeDaemon daemon;
  daemon.core_status = absl::DeadlineExceededError("the core thread does not answer");
  daemon.progress = {.age_ns = 60'000'000'000, .healthy = false, .detail = "the core is stuck"};
  const auto endpoint = MakeEndpoint(daemon.source());
  const auto answer = endpoint("/metrics", {});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  const Parsed parsed = Parse(answer->body);
  EXPECT_EQ(parsed.Of("spccl_core_answers"), 0);
  EXPECT_EQ(parsed.Of("spccl_healthy"), 0);
  EXPECT_EQ(parsed.Of("spccl_progress_age_seconds"), 60);
  EXPECT_FALSE(parsed.types.contains("spccl_sessions"));
}

TEST(EndpointTest, HealthFollowsProgressAndAsksNobody) {
  FakeDaemon daemon;
  const auto endpoint = MakeEndpoint(daemon.source());
  EXPECT_EQ(endpoint("/healthz", {})->status, 200);
  daemon.progress = {.age_ns = 1, .healthy = false, .detail = "a channel thread is stuck"};
  const auto answer = endpoint("/healthz", {});
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body, "a channel thread is stuck\n");
  EXPECT_EQ(daemon.asked, 0);
  EXPECT_FALSE(endpoint("/metric", {}).has_value());
}

}  // namespace
}  // namespace spccl::daemon::metrics
